"""The options that name the machines: -H, --hostfile, --cluster and what goes with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfrun.cli.options import Options
from tfrun.cluster.cluster_file import parse_any_cluster, parse_cluster_file
from tfrun.cluster.cluster_spec import ClusterSpec
from tfrun.cluster.host_lists import Host, parse_hostfile, parse_hosts
from tfrun.job.errors import UsageError
from tfrun.launcher.ssh.command import Remote


def stated_hosts(hosts: str | None, hostfile: str | None) -> tuple[Host, ...]:
    """Returns the hosts of -H or --hostfile; none when neither is given.

    Raises:
      UsageError: TFRUN-107 for both, TFRUN-105 for a file that cannot be read, TFRUN-209 and 210
        for malformed lists.
    """
    if hosts is not None and hostfile is not None:
        raise UsageError(
            "TFRUN-107", "both -H and --hostfile say which hosts", fix="Leave out one of them"
        )
    if hosts is not None:
        return parse_hosts(hosts)
    if hostfile is not None:
        return parse_hostfile(_read(hostfile, "--hostfile"), where=hostfile)
    return ()


def stated_cluster(options: Options) -> ClusterSpec | None:
    """Returns the cluster of --cluster; None when it is not given.

    Raises:
      UsageError: TFRUN-107 when -H, --hostfile, -n or --ps are given too, TFRUN-105 for a file that
        cannot be read, TFRUN-202, 204, 205 and 220 for what stands in it.
    """
    path = options.cluster
    if path is None:
        return None
    given = {"-H": options.hosts, "--hostfile": options.hostfile}
    given |= {"-n": options.workers, "--ps": options.spec.ps}
    for option, value in given.items():
        if value:
            what = f"--cluster states the whole cluster, so {option} must not state a part of it"
            raise UsageError("TFRUN-107", what, fix=f"Leave out {option}")
    return parse_cluster_file(_read(path, "--cluster"), where=path)


def any_cluster(path: str) -> ClusterSpec:
    """Returns the cluster of a file, with whatever roles.

    Raises:
      UsageError: TFRUN-105 for a file that cannot be read, TFRUN-202, 204 and 205 for what stands
        in it.
    """
    return parse_any_cluster(_read(path, "--cluster"), where=path)


def _read(path: str, option: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            "TFRUN-105", f"{path!r:.200} cannot be read: {what}", where=option
        ) from None


def remote_of(hosts: Sequence[Host], options: Options, environment: Mapping[str, str]) -> Remote:
    """Returns how --remote-python, --remote-dir, --env and --sync want things on the hosts.

    Raises:
      UsageError: TFRUN-107 when one of them is given without hosts, TFRUN-105 when a variable is
        not set.
    """
    python, directory, sync = options.remote_python, options.remote_dir, options.sync
    given = {"--remote-python": python, "--remote-dir": directory}
    given |= {"--env": options.env, "--sync": sync}
    for option, value in given.items():
        if value and not hosts:
            fix = "Name hosts with -H, or leave it out"
            raise UsageError("TFRUN-107", f"{option} is for other hosts", fix=fix)
    if sync and directory:
        fix = "--sync chooses the directory itself: leave out --remote-dir"
        raise UsageError("TFRUN-107", "both --sync and --remote-dir say where to run", fix=fix)
    for name in options.env:
        if name not in environment:
            raise UsageError(
                "TFRUN-105",
                f"the variable {name!r:.80} is not set here",
                where="--env",
                fix="Set and export it before you start tfrun",
            )
    return Remote(
        python=python or sys.executable,
        directory=directory or os.getcwd(),  # noqa: PTH109 (as the shell has it)
        environment={name: environment[name] for name in options.env},
        sync=sync,
    )
