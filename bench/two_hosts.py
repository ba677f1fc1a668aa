"""Two hosts on one machine: network namespaces with one link between them, and a core for each.

Each has its own host name and /dev/shm, so that nothing but the link joins them. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import harness

NAMES, ADDRESSES = ("n1", "n2"), ("10.67.0.1", "10.67.0.2")
PREFIX, DEVICE, LATE = "tfrun-bench", "eth0", "late0"
SECONDS = 20
BOOT = """
set -e
hostname "$1"
mount --bind "$2" /etc/hosts
mount -t tmpfs tmpfs /dev/shm
shift 2
exec "$@"
"""


def why_not() -> str:
    """Returns why there can be no hosts on this machine; "" when there can."""
    if sys.platform != "linux" or os.getuid() != 0:
        return "network namespaces need root on Linux"
    missing = [
        tool for tool in ("ip", "tc", "unshare", "taskset", "sysctl") if not shutil.which(tool)
    ]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if len(os.sched_getaffinity(0)) < len(NAMES):
        return "each of the two hosts needs a core of its own"
    probe = f"{PREFIX}-{os.getpid()}-probe"
    try:
        _call("ip", "netns", "add", probe)
        _call("ip", "netns", "exec", probe, "unshare", "--uts", "--mount", "true")
    except RuntimeError as error:
        return f"no namespaces: {error}"
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return ""


class TwoHosts:
    """The hosts, from `with` to its end, whatever ends it; SIGKILL leaves them to the next run."""

    def __init__(self) -> None:
        self._spaces = [f"{PREFIX}-{os.getpid()}-{name}" for name in NAMES]
        self._cores = sorted(os.sched_getaffinity(0))[: len(NAMES)]
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> TwoHosts:
        with contextlib.ExitStack() as ends:
            folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
            self._hosts = folder / "hosts"
            lines = [f"{a} {name}" for a, name in zip(ADDRESSES, NAMES, strict=True)]
            self._hosts.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
            for wanted in (signal.SIGTERM, signal.SIGHUP):
                ends.callback(signal.signal, wanted, signal.signal(wanted, _leave))
            ends.callback(self._remove)
            _sweep()
            for space in self._spaces:
                _call("ip", "netns", "add", space)
            one, other = self._spaces
            ends_of_link = ("type", "veth", "peer", "name", DEVICE, "netns", other)
            _call("ip", "link", "add", DEVICE, "netns", one, *ends_of_link)
            for space, address in zip(self._spaces, ADDRESSES, strict=True):
                _call("ip", "-n", space, "addr", "add", f"{address}/24", "dev", DEVICE)
                _call("ip", "-n", space, "link", "set", DEVICE, "up")
                _call("ip", "-n", space, "link", "set", "lo", "up")
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def both(self, commands: Sequence[Sequence[str]]) -> None:
        """Runs commands that shape the link, on both hosts.

        Raises:
          RuntimeError: one failed.
        """
        for number in range(len(NAMES)):
            for command in commands:
                _call(*self._on(number, command))

    def refuses(self, commands: Sequence[Sequence[str]]) -> str:
        """Returns what a host says against commands that shape its link; "" if nothing."""
        try:
            self.both(commands)
        except RuntimeError as error:
            return str(error).rpartition("taskset --cpu-list ")[2].partition(" ")[2]
        return ""

    def relay(self) -> str:
        """Adds a second link, LATE, whose packets a process carries; see scripts/late_link.py.

        Returns:
          A directory in which n1 and n2 take how many seconds what that host sends is under way.
        """
        folder = self._hosts.parent
        ends = []
        for name, space in zip(NAMES, self._spaces, strict=True):
            os.mkfifo(folder / name)
            ends += [space, str(folder / name)]
        process = subprocess.Popen(
            [sys.executable, str(harness.SCRIPTS / "late_link.py"), LATE, *ends],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE},
            start_new_session=True,
        )
        self._ends.callback(process.wait)
        self._ends.callback(process.kill)
        assert process.stdout
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError("there is no second link: see above")
        for space in self._spaces:
            # What comes in on one of two devices may have its way back on the other.
            for which in ("all", DEVICE, LATE):
                setting = f"net.ipv4.conf.{which}.rp_filter=0"
                _call("ip", "netns", "exec", space, "sysctl", "-q", "-w", setting)
        return str(folder)

    def run(
        self, commands: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]]
    ) -> list[float]:
        """Runs a command on each host at once; returns the numbers that rank 0 wrote.

        Raises:
          harness.DidNotRun: one failed, or it took too long.
        """
        with tempfile.TemporaryDirectory() as directory:
            out = Path(directory, "out")
            shared = {**harness._environment(), "BENCH_OUT": str(out), **harness._now()}
            processes = []
            try:
                for i, command in enumerate(commands):
                    process = subprocess.Popen(
                        self._on(i, command),
                        **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE},
                        stderr=subprocess.PIPE,
                        env={**shared, **environments[i]},
                        start_new_session=True,  # Ctrl-C is for us, who then end them
                    )
                    processes.append(process)
                harness._check(processes)
                return json.loads(out.read_text())
            finally:
                self._kill()

    def _on(self, number: int, command: Sequence[str]) -> list[str]:
        enter = ["ip", "netns", "exec", self._spaces[number], "unshare", "--uts", "--mount"]
        boot = ["sh", "-c", BOOT, "sh", NAMES[number], str(self._hosts)]
        return [*enter, *boot, "taskset", "--cpu-list", str(self._cores[number]), *command]

    def _kill(self) -> None:
        for space in self._spaces:
            _empty(space)

    def _remove(self) -> None:
        kept = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave some
        for space in self._spaces:
            _delete(space)
        signal.signal(signal.SIGINT, kept)


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def _sweep() -> None:
    """Removes what runs that were killed have left."""
    for space in _call("ip", "netns", "list").split():
        prefix, _, rest = space.partition(f"{PREFIX}-")
        if not prefix and rest and not Path("/proc", rest.partition("-")[0]).exists():
            _delete(space)


def _delete(space: str) -> None:
    if Path("/run/netns", space).exists():
        _empty(space)
        _call("ip", "netns", "del", space)


def _empty(space: str) -> None:
    """Ends all that runs in a namespace; what is being started there meanwhile, too."""
    for _ in range(10):
        found = subprocess.run(
            ["ip", "netns", "pids", space], capture_output=True, text=True, check=False
        ).stdout.split()
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise RuntimeError(f"{' '.join(command)}: {said}")
    return done.stdout
