"""Keeps what `tfrun bench` has measured on some machines, for later jobs on the same ones.

One file for each user, `~/.cache/tfrun/bench.json` (or under XDG_CACHE_HOME), with the newest
measurement of each set of machines. One counts for jobs with as many workers on these machines,
under the same version of tfrun. What cannot be read counts as nothing: a cache is no place to fail.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrun.job import files
from tfrun.job.spec import JobSpec
from tfrun.job.version import __version__

KEPT = 50
LARGEST = 1 << 30  # bytes; what is more was not measured, but written by hand
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")

Machines = Mapping[str, Any]  # what has to be the same for a measurement to count


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """What was the fastest between workers without GPUs.

    Attributes:
      communication: as for --communication: "host" or "ring".
      small_bytes: in the host collective, sums up to so many bytes go to all at once; None:
        not measured.
      pack_bytes: of what TensorFlow's ring sends as one; None: not measured.
      date: of the measurement, such as "2026-11-22".
    """

    communication: str
    small_bytes: int | None = None
    pack_bytes: int | None = None
    date: str = ""

    def on(self, spec: JobSpec) -> JobSpec:
        """A job with these settings, wherever it does not state others."""
        return dataclasses.replace(
            spec,
            preferred=self._way(spec),
            small_bytes=self.small_bytes,
            pack_bytes=self.pack_bytes,
        )

    def _way(self, spec: JobSpec) -> str:
        """What is used: what a job asks for, TensorFlow's ring may not have."""
        least, most = spec.workers.low, spec.workers.high
        one_each = not spec.replicas or least == most == spec.replicas
        return self.communication if one_each and spec.in_place != "on" else "host"

    def used_by(self, spec: JobSpec) -> str:
        """What a person is told."""
        way = self._way(spec) if spec.communication == "auto" else spec.communication
        parts = [f"--communication {way}"]
        if way == "host" and self.small_bytes is not None:
            parts.append(f"in one exchange up to {self.small_bytes >> 10} KiB")
        if way == "ring" and self.pack_bytes is not None:
            parts.append(f"packs of {self.pack_bytes >> 20} MiB")
        return f"as measured by tfrun bench on {self.date}: {', '.join(parts)}"


def machines_of(hosts: Sequence[tuple[str, int]], workers: int) -> Machines:
    """The machines of a job.

    Args:
      hosts: those that it names, and how many workers each takes; none for this machine alone.
      workers: how many it has.
    """
    named = list(map(list, hosts)) or [[socket.gethostname(), workers]]
    return {"tfrun": __version__, "hosts": named, "workers": workers}


def path() -> Path:
    """Where measurements are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "tfrun" / "bench.json"


def keep(machines: Machines, settings: BenchSettings) -> None:
    """Keeps a measurement, in place of an older one of these machines.

    Raises:
      OSError: there is no room, or no right.
    """
    file = path()
    new = {**machines, **dataclasses.asdict(settings)}
    others = [one for one in _read(file) if not _fits(one, machines)]
    file.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(file) as temporary:
        temporary.write_text(json.dumps([*others[1 - KEPT :], new], indent=1) + "\n")


def find(machines: Machines) -> BenchSettings | None:
    """The measurement of these machines by this version of tfrun; None where there is none."""
    for one in reversed(_read(path())):
        if _fits(one, machines):
            return _settings(one)
    return None


def _fits(one: Mapping[str, Any], machines: Machines) -> bool:
    return all(one.get(name) == value for name, value in machines.items())


def _settings(one: Mapping[str, Any]) -> BenchSettings | None:
    names = [field.name for field in dataclasses.fields(BenchSettings)]
    found: dict[str, Any] = {name: one.get(name) for name in names}
    sizes = [found["small_bytes"], found["pack_bytes"]]
    fine = (
        found["communication"] in ("host", "ring")
        and all(size is None or (type(size) is int and 0 <= size <= LARGEST) for size in sizes)
        and isinstance(found["date"], str)
        and _DATE.fullmatch(found["date"])
    )
    return BenchSettings(**found) if fine else None


def _read(file: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(found, list):
            return [one for one in found if isinstance(one, dict)]
    return []
