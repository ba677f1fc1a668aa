"""`tfrun logs [RUN]`: what the workers of a job have printed."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import click

from tfrun.cli.find_run import about_run
from tfrun.cli.params import Whole
from tfrun.job import files
from tfrun.job.errors import UsageError

LOOK_SECONDS = 0.2


@about_run
@click.option("--rank", type=Whole(min=0), help="Show only this worker's log.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends.")
@click.option("--grep", metavar="PATTERN", help="Only lines in which this is found.")
def logs(run_dir: Path, *, rank: int | None, follow: bool, grep: str | None) -> int:
    """Show what the workers of a job have printed, TensorFlow's own messages included."""
    try:
        wanted = re.compile(grep) if grep else None
    except re.error as error:
        raise UsageError(
            "TFRUN-105",
            f"{grep!r:.100} is not a regular expression: {error}",
            where="--grep",
            expected="a pattern as Python's re module takes it",
        ) from None
    from tfrun.observe.ask_job import may_run

    tails = _Tails(run_dir / "logs", rank, wanted)
    try:
        shown = tails.show()
        while follow and may_run(run_dir):
            time.sleep(LOOK_SECONDS)
            shown = tails.show() or shown
        shown = tails.show(last=True) or shown
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:  # `| head`
        from tfrun.observe.terminal import drop_unwritten

        drop_unwritten(sys.stdout)
        return 0
    if not shown and not tails.found:
        which = f"of rank {rank} " if rank is not None else ""
        print(f"tfrun: no log {which}in {run_dir / 'logs'}", file=sys.stderr)
        return 1
    return 0


class _Tails:
    """The logs of a run's workers, line by line."""

    def __init__(self, folder: Path, rank: int | None, wanted: re.Pattern[str] | None) -> None:
        self._folder, self._rank, self._wanted = folder, rank, wanted
        self._read: dict[Path, int] = {}  # bytes
        self._rest: dict[Path, bytes] = {}

    @property
    def found(self) -> int:
        return len(self._read)

    def show(self, *, last: bool = False) -> bool:
        """Prints what is new; with `last` also a line that has not ended."""
        shown = False
        for path in self._paths():
            try:
                with files.to_read(path) as file:  # a thousand of them cannot stay open
                    file.seek(self._read.get(path, 0))
                    text = self._rest.get(path, b"") + file.read()
                    self._read[path] = file.tell()
            except OSError:  # `found` has named it
                continue
            *lines, rest = text.split(b"\n")
            if last and rest:
                lines, rest = [*lines, rest], b""
            self._rest[path] = rest
            for line in (one.decode("utf-8", "replace") for one in lines):
                if self._wanted is None or self._wanted.search(line):
                    shown = True
                    print(self._prefixed(path, line))
        sys.stdout.flush()
        return shown

    def _paths(self) -> list[Path]:
        from tfrun.observe.step_reports import rank_order

        found = [path for path in self._folder.glob("*-*.log") if path.stem.count("-") == 1]
        found = [path for path in found if path.stem.rpartition("-")[2].isdecimal()]
        found.sort(key=lambda path: rank_order(path.stem.replace("-", ":")))
        return found if self._rank is None else found[self._rank : self._rank + 1]

    def _prefixed(self, path: Path, line: str) -> str:
        line = line.rstrip("\r").rpartition("\r")[2]  # a progress bar's last state
        return line if self._rank is not None else f"[{path.stem.replace('-', ' ')}] {line}"
