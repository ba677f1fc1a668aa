"""Copies files from object storage to this machine's disk, once for all of its workers.

Any sample may be the next one, and where a record begins is only known when the file has been
read: so a file is read once, whole, and not in thousands of small requests. The copies lie in the
job's scratch directory, survive its restarts, and go with it.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tfrun.data import errors
from tfrun.data.sources.record_index import is_kept
from tfrun.data.sources.records import matching, stated
from tfrun.job import files, reports
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import channel, progress
from tfrun.storage import long_waits, scratch, url
from tfrun.storage.objects import PATIENCE, Entry, Objects

WHERE = "tfrun.Dataset, files"
_WILD = frozenset("*?[")


def local_paths(patterns: str | Sequence[str]) -> list[str]:
    """Returns the files that match one or more patterns, on this machine's disk; see `matching`.

    Args:
      patterns: paths, or URLs, whose files are copied here.

    Raises:
      UsageError: TFRUN-604 where a pattern matches nothing, TFRUN-105 or TFRUN-704 for a URL that
        cannot be used.
      TfrunError: TFRUN-618 where there is no room here.
    """
    found: list[str] = []
    for pattern in _stated(patterns):
        found += _copied(pattern) if url.is_url(pattern) else matching(pattern)
    return found


def has_url(patterns: str | Sequence[str]) -> bool:
    """Whether some of these files are copied here, where other machines do not see them."""
    return any(map(url.is_url, _stated(patterns)))


def _stated(patterns: str | Sequence[str]) -> list[str]:
    return [url.normal(text, where=WHERE, is_pattern=True) for text in stated(patterns)]


def _copied(pattern: str) -> list[str]:
    """Copies what matches, and returns where; sorted by the objects' names, as all workers do."""
    scheme, _, rest = pattern.partition("://")
    bucket, _, below = rest.partition("/")
    objects = Objects(f"{scheme}://{bucket}")
    plain = below.split("*")[0].split("?")[0].split("[")[0]
    with long_waits.told(f"waiting up to {PATIENCE:.0f} s for the list of {pattern}", _tell):
        there = objects.list(plain)
        wanted = [below]
        if _WILD & set(below):
            wanted = objects.matching(below)
    wanted = [name for name in wanted if name in there and not is_kept(name)]
    if not wanted:
        is_folder = any(name.startswith(f"{below}/" if below else "") for name in there)
        fix = f"To read what is in that folder, write {pattern}/*" if is_folder else ""
        raise errors.no_file(pattern, fix)
    try:
        with progress.pausing():
            return _copies(objects, {name: there[name] for name in wanted})
    except OSError as error:
        raise errors.unreadable(pattern, error) from None


def _copies(objects: Objects, wanted: dict[str, Entry]) -> list[str]:
    folder = scratch.folder(settings().state_path)
    targets = {name: _target(folder, objects, name, entry) for name, entry in wanted.items()}
    for name, target in targets.items():
        errors.copied(str(target), objects.at(name))
    missing = [name for name, target in targets.items() if not target.exists()]
    needed, free = sum(wanted[name].size for name in missing), shutil.disk_usage(folder).free
    if needed > free:
        raise errors.no_room_for_copy(str(folder), needed, free)
    # Each worker of a machine begins with another file, and waits for those that others copy.
    text = f"copying {len(missing):,} file(s) ({needed / 1e9:,.1f} GB) of {objects.url} to {folder}"
    first = world().local_rank * len(missing) // max(1, world().local_size) if missing else 0
    with long_waits.told(text, _tell):
        for name in missing[first:] + missing[:first]:
            _copy(objects, name, targets[name])
    return [str(target) for target in targets.values()]


def _tell(text: str) -> None:
    """Says it once on each machine."""
    if world().local_rank:
        return
    if channel.is_open():
        channel.emit(reports.WorkerNotice(text=text))
    else:
        print(f"tfrun: {text}", file=sys.stderr, flush=True)


def _target(folder: Path, objects: Objects, name: str, entry: Entry) -> Path:
    """Where a file's copy belongs: an object that has been written anew is another file."""
    digest = hashlib.sha256(f"{objects.at(name)} {entry}".encode()).hexdigest()[:16]
    return folder / f"data-{digest}" / Path(name).name


def _copy(objects: Objects, name: str, target: Path) -> None:
    target.parent.mkdir(mode=0o700, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker's copy is waited for
        if not target.exists():
            with files.whole(target) as temporary:
                objects.fetch(name, temporary)
