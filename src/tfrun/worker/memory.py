"""Was a process killed because memory ran out? The kernel counts such kills."""

from __future__ import annotations

from pathlib import Path


def oom_kills(proc: Path = Path("/proc")) -> int:
    """Returns how many processes the kernel has killed for memory since boot; 0 if unknown.

    `oom_kill` of /proc/vmstat counts both a full machine and a full cgroup (Linux >= 4.13).
    """
    try:
        for line in (proc / "vmstat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return 0
