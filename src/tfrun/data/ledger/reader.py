"""Reads the files of a ledger: who has read what, pass by pass. See writer.py for their form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

from tfrun.data import errors
from tfrun.data.ledger import writer
from tfrun.data.ledger.writer import FOLDER, Header, How
from tfrun.job import files as own_file
from tfrun.job.record import Record, fields_of

Place = tuple[int, int]  # epoch, and samples of it: batches may have had another size before
Line = TypeVar("Line", bound=Record)

_NAME = re.compile(r"(\d{4,9})-(\d{5,9})-(\d{5,9})\.jsonl")


class Range(Record):
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
      header: its first line, but for the rank.
      ranges: what each worker has read, by rank; workers whose file is missing are left out.
    """

    job: int
    round: int
    number: int
    header: Header
    ranges: dict[int, list[Range]]

    @property
    def begin(self) -> Place:
        return self.place(self.header.epoch, self.header.step, self.header.skip)

    @property
    def left(self) -> Place:
        """Where the data stood before."""
        return self.place(*self.header.left)

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
        samples = step * self.header.batch + skip
        return (epoch + 1, 0) if samples >= self.header.samples else (epoch, samples)

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


@dataclass(kw_only=True)
class _File:
    """What one worker has written in a round.

    Attributes:
      path: of the file.
      lacks: why lines are not there; "" when none is missing that the writer knew of.
      notes: data that is read without a record of it.
      left_out: source and number of samples that could not be read.
      tapes: of each pass its header, what was read, and the header's place in the file.
    """

    path: Path
    lacks: str = "its file is empty: the disk was full, or it died as it began"
    notes: list[str] = field(default_factory=list)
    left_out: list[tuple[int, int]] = field(default_factory=list)
    tapes: list[tuple[Header, list[Range], int]] = field(default_factory=list)

    def add(self, record: Any, place: int) -> bool:
        """Notes what a line says; returns whether it is one of a ledger."""
        if place == 0:
            self.lacks = ""
        match record:
            case {writer.LACKS: str(why)} if place == 0 and len(record) == 1:
                self.lacks = f"the disk was full: {why}" if why else ""
            case {writer.NOTE: str(note)}:
                self.notes.append(note)
            case {writer.LEFT_OUT: int(sample), "source": int(source)} if min(sample, source) >= 0:
                self.left_out.append((source, sample))
            case {"pass": int(number), "data": _}:
                header = _read_as(Header, record)
                if header is None or number != len(self.tapes) or not _is_sound(header):
                    return False
                self.tapes.append((header, [], place))
            case {"pass": int(number)} if 0 <= number < len(self.tapes):
                part = _read_as(Range, record)
                if part is None or min(vars(part).values()) < 0:
                    return False
                self.tapes[number][1].append(part)
            case _:
                return False
        return True


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
    rounds: dict[tuple[int, int], dict[int, _File]] = {}
    for path in paths:
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise errors.bad_ledger(str(path), 0, "it is not a file of a ledger")
        job, round_, rank = map(int, match.groups())
        rounds.setdefault((job, round_), {})[rank] = _read_file(path)
    notes, lacking, left_out = dict[str, None](), [], dict[int, set[int]]()
    for (job, round_), files in sorted(rounds.items()):
        for rank, file in sorted(files.items()):
            notes |= dict.fromkeys(file.notes)
            if file.lacks:
                lacking.append(f"worker {rank} of round {round_} of job {job}: {file.lacks}")
            for source, sample in file.left_out:
                left_out.setdefault(source, set()).add(sample)
    return Contents(
        rounds=[list(_passes(*key, files)) for key, files in sorted(rounds.items())],
        not_covered=tuple(notes),
        left_out={source: sorted(samples) for source, samples in left_out.items()},
        lacking=tuple(lacking),
    )


def _passes(job: int, round_: int, files: dict[int, _File]) -> Iterator[Pass]:
    """Puts the same pass of all workers together."""
    for number in range(max(len(file.tapes) for file in files.values())):
        here = {
            rank: file.tapes[number] for rank, file in files.items() if len(file.tapes) > number
        }
        together: dict[str, Pass] = {}
        for rank, (header, ranges, place) in here.items():
            own = header.rank
            # One that differs trains alone, as if it were the only one.
            name = header.data if own == rank else f"{header.data} (worker {rank})"
            header = replace(header, rank=0, data=name)
            made = together.setdefault(
                name, Pass(job=job, round=round_, number=number, header=header, ranges={})
            )
            if made.header != header:
                what = f"worker {rank} has read other data, or from another place, than its peers"
                raise errors.bad_ledger(str(files[rank].path), place, what)
            made.ranges[own] = ranges
        if len(together) > 1 and any(header.size > 1 for header, _, _ in here.values()):
            rank = max(here)
            what = f"worker {rank} has read other data than its peers"
            raise errors.bad_ledger(str(files[rank].path), here[rank][2], what)
        yield from together.values()


def _read_file(path: Path) -> _File:
    try:
        content = own_file.read(path)
    except OSError as error:
        raise errors.bad_ledger(str(path), 0, error.strerror or str(error)) from None
    made, place = _File(path=path), 0
    for line in content.splitlines(keepends=True):
        if line.endswith(b"\n"):  # else its writer has died over it, before the step
            try:
                is_one = made.add(json.loads(line), place)
            except (ValueError, RecursionError):
                is_one = False
            if not is_one:
                raise errors.bad_ledger(str(path), place, "this is not a line of a ledger")
        place += len(line)
    return made


def _read_as(kind: type[Line], record: dict[str, Any]) -> Line | None:
    """Returns what a line says, without what is not known here; None if it says something else."""
    fields = fields_of(kind)
    found = {name: record[name] for name in fields if name in record}
    admitted = all(fields[name].admits(value) for name, value in found.items())
    is_whole = all(name in found or stated.has_default for name, stated in fields.items())
    return kind(**found) if admitted and is_whole else None


def _is_sound(header: Header) -> bool:
    least = min(header.samples, header.rank, header.size, header.epoch, header.step)
    known = header.by in ("sample", "position") and header.how in get_args(How)
    return least >= 0 and header.batch > 0 and known and len(header.left) in (2, 3)
