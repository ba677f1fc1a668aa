"""Names the files of a run directory that cannot be read, or only in part."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from tfrun.job import control_contact
from tfrun.job.files import read
from tfrun.job.run_dir import last_job
from tfrun.observe.events import event_of


def damaged(run_dir: Path) -> list[str]:
    """Returns a sentence for each such file. What others may not read by design is none."""
    contact = run_dir / control_contact.NAME
    unasked = ", so that no job here can be asked"
    return [
        *_json(run_dir / "job.json", lambda: last_job(run_dir)),
        *_json(contact, lambda: control_contact.read(run_dir), unasked),
        *_events(run_dir / "events.jsonl"),
        *_logs(run_dir),
    ]


def _json(path: Path, found: Callable[[], object], so: str = "") -> Iterator[str]:
    try:
        read(path)
    except (FileNotFoundError, PermissionError):
        return
    except OSError as error:
        yield f"{path.name} cannot be read{so}: {error.strerror}"
        return
    if not found():
        yield f"{path.name} is damaged{so}"


def _events(path: Path) -> Iterator[str]:
    try:
        lines = read(path).split(b"\n")[:-1]  # the last one is being written, or was cut off
    except FileNotFoundError:
        yield f"{path.name} is missing"
        return
    except OSError as error:
        yield f"{path.name} cannot be read: {error.strerror}"
        return
    bad = [number for number, line in enumerate(lines, 1) if not _is_whole(line)]
    if bad:
        first = f", the first is line {bad[0]:,}" if len(bad) > 1 else f": line {bad[0]:,}"
        verb = "is" if len(bad) == 1 else "are"
        yield f"{path.name}: {len(bad):,} of {len(lines):,} lines {verb} damaged{first}"


def _is_whole(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return event_of(line) is not None


def _logs(run_dir: Path) -> Iterator[str]:
    folder = run_dir / "logs"
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix == ".log")
    except FileNotFoundError:
        return
    except OSError as error:
        yield f"logs cannot be read: {error.strerror}"
        return
    for path in found:
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                yield f"logs/{path.name} is not a file"
                continue
            with path.open("rb"):
                pass
        except OSError as error:
            yield f"logs/{path.name} cannot be read: {error.strerror}"
