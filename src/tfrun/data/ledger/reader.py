"""Reads the files of a ledger: who has read what, pass by pass. See writer.py for their form."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrun.data import errors
from tfrun.data.ledger.writer import FOLDER, LACKS
from tfrun.job import files as own_file

Place = tuple[int, int]  # epoch, and samples of it: batches may have had another size before
Record = tuple[int, dict[str, Any]]  # place in its file, and what the line holds

NOTE, LEFT_OUT = "not covered", "left out"
_NAME = re.compile(r"(\d{4,9})-(\d{5,9})-(\d{5,9})\.jsonl")
_TEXTS = {
    "data": None,
    "by": ("sample", "position"),
    "how": ("next", "sought", "resumed", "passed"),
}
_NUMBERS = ("samples", "batch", "rank", "size", "epoch", "step")
_RANGE = ("epoch", "step", "begin", "count", "taken", "done")


@dataclass(frozen=True, kw_only=True)
class Range:
    """One worker's samples of some steps of an epoch.

    Attributes:
      epoch: from 0.
      step: the first of the steps.
      begin: position in the epoch's order of this worker's first sample in that step; in each
        further step it is one batch further.
      count: samples in each step.
      taken: steps that were given their samples.
      done: those of them that are known to be over.
    """

    epoch: int
    step: int
    begin: int
    count: int
    taken: int
    done: int


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One sequence of steps over some data, as all workers of a round have read it.

    Attributes:
      job: number of the job in the run directory, from 1.
      round: of the job, from 0.
      number: of the pass in the round, from 0.
      header: of the first line; see `ledger.open_tape`.
      ranges: what each worker has read, by rank; workers whose file is missing are left out.
    """

    job: int
    round: int
    number: int
    header: dict[str, Any]
    ranges: dict[int, list[Range]]

    @property
    def data(self) -> str:
        return self.header["data"]

    @property
    def call(self) -> int:
        return self.header["call"]

    @property
    def begin(self) -> Place:
        return self.place(self.header["epoch"], self.header["step"], self.header.get("skip", 0))

    @property
    def left(self) -> Place:
        """Where the data stood before."""
        return self.place(*self.header["left"])

    @property
    def taken(self) -> Place:
        """The place after the last step that any worker was given."""
        return self._end("taken")

    @property
    def done(self) -> Place:
        """The place after the last step that any worker knows to be over."""
        return self._end("done")

    def place(self, epoch: int, step: int, skip: int = 0) -> Place:
        """The place after so many steps and samples; the end of an epoch is the next's begin."""
        samples = step * self.header["batch"] + skip
        return (epoch + 1, 0) if samples >= self.header["samples"] else (epoch, samples)

    def _end(self, what: str) -> Place:
        ends = [
            self.place(part.epoch, part.step + getattr(part, what))
            for parts in self.ranges.values()
            for part in parts
            if getattr(part, what)
        ]
        return max(ends, default=self.begin)


@dataclass(frozen=True, kw_only=True)
class Contents:
    """All that the files of a run's ledger hold.

    Attributes:
      rounds: the passes of each round, rounds and passes in the order in which they were.
      not_covered: what the workers say to have read without a record of it.
      left_out: the samples that could not be read, in order, by source.
      lacking: the workers whose lines are not all there, and why.
    """

    rounds: list[list[Pass]]
    not_covered: tuple[str, ...]
    left_out: dict[int, list[int]]
    lacking: tuple[str, ...] = ()


def read(run_dir: str | Path) -> Contents:
    """Reads the ledger of a run.

    Raises:
      UsageError: TFRUN-610 where there is no run or no ledger.
      TfrunError: TFRUN-611 where a file is torn, is none of tfrun's, or contradicts another one.
    """
    if not Path(run_dir).is_dir():
        raise errors.no_ledger(str(run_dir), "there is no such run directory")
    paths = sorted(p for p in Path(run_dir, FOLDER).glob("*") if not p.name.startswith("."))
    if not paths:
        raise errors.no_ledger(str(run_dir), "this run has written no ledger")
    rounds: dict[tuple[int, int], dict[int, Path]] = {}
    for path in paths:
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise errors.bad_ledger(str(path), 0, "it is no file of a ledger")
        job, round_, rank = map(int, match.groups())
        rounds.setdefault((job, round_), {})[rank] = path
    records = {path: list(_records(path)) for path in paths}
    lacking = []
    for (job, round_), files in sorted(rounds.items()):
        for rank, path in sorted(files.items()):
            if why := _lacks(records[path]):
                lacking.append(f"worker {rank} of round {round_} of job {job}: {why}")
    notes, left_out = dict[str, None](), dict[int, set[int]]()
    for _, record in itertools.chain.from_iterable(records.values()):
        if _is_note(record):
            notes[record[NOTE]] = None
        elif _is_left_out(record):
            left_out.setdefault(record["source"], set()).add(record[LEFT_OUT])
    return Contents(
        rounds=[list(_passes(*key, files, records)) for key, files in sorted(rounds.items())],
        not_covered=tuple(notes),
        left_out={source: sorted(samples) for source, samples in left_out.items()},
        lacking=tuple(lacking),
    )


def _lacks(records: list[Record]) -> str:
    """Why lines of a file are not there; "" when none is missing that the writer knew of."""
    if not records:
        return "its file is empty: the disk was full, or it died as it began"
    said = records[0][1].get(LACKS)
    return f"the disk was full: {said}" if isinstance(said, str) and said else ""


def _passes(
    job: int, round_: int, files: dict[int, Path], records: dict[Path, list[Record]]
) -> Iterator[Pass]:
    """Puts the same pass of all workers together."""
    tapes = {rank: list(_tapes(path, records[path])) for rank, path in files.items()}
    for number in range(max(map(len, tapes.values()))):
        here = {rank: tape[number] for rank, tape in tapes.items() if len(tape) > number}
        together: dict[str, Pass] = {}
        for rank, (header, ranges, place) in here.items():
            own = header.pop("rank")
            if own != rank:  # this worker trains alone, as if it were the only one
                header["data"] += f" (worker {rank})"
            made = together.setdefault(
                header["data"],
                Pass(job=job, round=round_, number=number, header=header, ranges={}),
            )
            if made.header != header:
                what = f"worker {rank} has read other data, or from another place, than its peers"
                raise errors.bad_ledger(str(files[rank]), place, what)
            made.ranges[own] = ranges
        if len(together) > 1 and any(header["size"] > 1 for header, _, _ in here.values()):
            rank = max(here)
            what = f"worker {rank} has read other data than its peers"
            raise errors.bad_ledger(str(files[rank]), here[rank][2], what)
        yield from together.values()


def _tapes(path: Path, records: list[Record]) -> Iterator[tuple[dict[str, Any], list[Range], int]]:
    """Yields the header, the ranges and the place in the file of each pass."""
    found: list[tuple[dict[str, Any], list[Range], int]] = []
    for place, record in records:
        if _is_note(record) or _is_left_out(record) or _is_about_room(place, record):
            continue
        number = record.pop("pass", None)
        if "data" in record and number == len(found) and _is_header(record):
            found.append((record, [], place))
        elif _is_range(record) and type(number) is int and 0 <= number < len(found):
            found[number][1].append(Range(**record))
        else:
            raise errors.bad_ledger(str(path), place, "this is no line of a ledger")
    yield from found


def _records(path: Path) -> Iterator[Record]:
    try:
        content = own_file.read(path)
    except OSError as error:
        raise errors.bad_ledger(str(path), 0, error.strerror or str(error)) from None
    place = 0
    for line in content.splitlines(keepends=True):
        if line.endswith(b"\n"):  # else its writer has died over it, before the step
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            if not isinstance(record, dict):
                raise errors.bad_ledger(str(path), place, "this is no line of a ledger")
            yield place, record
        place += len(line)


def _is_header(record: dict[str, Any]) -> bool:
    texts = all(
        isinstance(record.get(name), str) and (allowed is None or record[name] in allowed)
        for name, allowed in _TEXTS.items()
    )
    numbers = all(type(record.get(name)) is int and record[name] >= 0 for name in _NUMBERS)
    rest = type(record.get("seed")) is int and type(record.get("call")) is int
    flags = all(isinstance(record.get(name), bool) for name in ("shuffle", "trains"))
    rest = rest and type(record.get("tolerant", 0)) is int
    left = record.get("left")
    kinds = [type(n) for n in left] if isinstance(left, list) else []
    is_place = kinds in ([int, int], [int, int, int]) and type(record.get("skip", 0)) is int
    return texts and numbers and rest and flags and is_place and record["batch"] > 0


def _is_note(record: dict[str, Any]) -> bool:
    return isinstance(record.get(NOTE), str)


def _is_about_room(place: int, record: dict[str, Any]) -> bool:
    return not place and set(record) == {LACKS} and isinstance(record[LACKS], str)


def _is_left_out(record: dict[str, Any]) -> bool:
    return set(record) == {LEFT_OUT, "source"} and all(
        type(number) is int and number >= 0 for number in record.values()
    )


def _is_range(record: dict[str, Any]) -> bool:
    return set(record) == set(_RANGE) and all(
        type(record[name]) is int and record[name] >= 0 for name in _RANGE
    )
