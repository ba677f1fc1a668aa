"""Kubernetes' pods as a group whose control port and secret all of them know beforehand."""

from __future__ import annotations

from pathlib import Path

from tfrun.cluster.pods import TOKEN_FILE, PodGroup
from tfrun.control.placement import Site
from tfrun.control.protocol.tls import Certificate, pem_of
from tfrun.job.errors import UsageError
from tfrun.job.spec import JobSpec
from tfrun.launch.backend import Job
from tfrun.launch.prestarted.discovery import Discovery, Found
from tfrun.launch.prestarted.group import group_job


def discovery_of(group: PodGroup, certificate: Certificate | None) -> Discovery:
    """Returns how the pods find their launcher: it is where their environment says.

    Args:
      group: this process's group.
      certificate: what the launcher shows, which all have; None is without TLS.

    Raises:
      UsageError: TFRUN-212 when there is no secret.
    """
    try:
        token = Path(group.token_file).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        what = f"{group.token_file!r:.200} cannot be read: {error}"
        raise UsageError("TFRUN-212", what, where=TOKEN_FILE) from None
    if not token:
        what = f"{group.token_file!r:.200} is empty"
        raise UsageError("TFRUN-212", what, where=TOKEN_FILE)
    url = f"{'https' if certificate else 'http'}://{group.hosts[0]}:{group.port}"
    known = Found(url=url, token=token, certificate=pem_of(certificate))
    return Discovery(why="it has not connected yet", known=known, port=group.port)


def pods_job(spec: JobSpec, group: PodGroup, certificate: Certificate | None) -> Job:
    """Returns the job of a group whose first process this is.

    Raises:
      UsageError: TFRUN-103 when there are too many workers, TFRUN-212 without a secret.
    """
    pairs = zip(group.agents, group.hosts, strict=True)
    sites = [Site(agent=agent, host=host, slots=group.slots) for agent, host in pairs]
    discovery = discovery_of(group, certificate)
    own = {"returns": True, "address": group.address, "certificate": certificate}
    return group_job(spec, sites, group.agent, discovery, **own)
