"""Proves from a ledger that every sample of every epoch changed the weights exactly once.

A step counts when it is in the weights. A round that goes on in a training at some place says so:
all steps before it are in the state that it goes on from, and what earlier rounds did from there
on is void, as their state is gone. At the end of the last round those steps count that are over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tfrun.data import errors
from tfrun.data.ledger.reader import Pass, Place, read
from tfrun.data.order.permutation import Order

NAMED = 20  # samples that a report names
PIECE = 1 << 20  # samples of an order that are in memory at a time

Spans = NDArray[np.int64]  # shape [k, 2]: positions [begin, end), in order, apart


@dataclass(frozen=True, kw_only=True)
class EpochReport:
    """What the ledger says about one epoch.

    Attributes:
      data: name of the dataset, "data0" for the first one that the script made.
      reading: from 0; one more each time the script itself has gone back to an earlier place.
      epoch: from 0.
      samples: samples in an epoch of the data.
      expected: samples that should have been consumed: those of the epoch but for what the
        script itself has left out, and of the last epoch only up to the last step.
      consumed: samples that were, each counted as often as it was.
      duplicates: samples (indices into the data) that were consumed more than once.
      missing: samples that were not consumed. Of both at most `NAMED` are named.
      duplicate_count: how many there are.
      missing_count: how many there are.
      steps: steps that have consumed them.
      complete: whether the epoch was finished.
      worlds: the world sizes of its steps, in order.
      left_out: samples that were in the steps and could not be read (`on_error="skip"`): they count
        neither as expected nor as consumed. At most `NAMED` are named.
      left_out_count: how many there are.
      by_position: the samples are numbered by their position in a `tf.data` pipeline.
    """

    data: str
    reading: int = 0
    epoch: int
    samples: int
    expected: int
    consumed: int
    duplicates: tuple[int, ...]
    missing: tuple[int, ...]
    duplicate_count: int
    missing_count: int
    steps: int
    complete: bool
    worlds: tuple[int, ...]
    by_position: bool = False
    left_out: tuple[int, ...] = ()
    left_out_count: int = 0

    @property
    def exact(self) -> bool:
        """Whether each expected sample was consumed exactly once."""
        return not self.duplicates and not self.missing and self.consumed == self.expected


@dataclass(frozen=True, kw_only=True)
class LedgerReport:
    """What a ledger says.

    Attributes:
      epochs: of each dataset, in order.
      jobs: how many jobs have written it: a run directory may be gone on in.
      rounds: how many rounds they had in all.
      not_covered: data of which it proves nothing, why, and what to do.
      no_tape: workers that have left no file, "worker 3 of round 0 of job 1".
      lacking: those whose files are not whole, and why: what they trained is not proved.
    """

    epochs: tuple[EpochReport, ...]
    jobs: int
    rounds: int
    no_tape: tuple[str, ...]
    not_covered: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether every epoch is; where no step was trained to its end there is none to prove."""
        exact = all(epoch.exact for epoch in self.epochs)
        return bool(self.epochs) and exact and not self.lacking


@dataclass
class _Read:
    """A pass and the place up to which it counts; settled once a later round has told it."""

    made: Pass
    end: Place
    is_settled: bool = False


@dataclass
class _Reading:
    """All that a script has read of some data from one going back to the next.

    Attributes:
      spans: the places from and to which all steps should have been read.
      reads: what was read.
    """

    spans: list[list[Place]]
    reads: list[_Read] = field(default_factory=list)


def examine(run_dir: str | Path) -> LedgerReport:
    """Returns all that the ledger of a run says.

    Raises:
      UsageError: TFRUN-610 where there is no run or no ledger.
      TfrunError: TFRUN-611 where the ledger cannot be read, or the data was not the same.
    """
    ledger = read(run_dir)
    kept = committed(ledger.rounds)
    by_data: dict[str, list[_Read]] = {}
    for one in kept:
        by_data.setdefault(one.made.header.data, []).append(one)
    reports: list[EpochReport] = []
    for name, reads in by_data.items():
        _check_same_data(name, reads, str(run_dir))
        for number, reading in enumerate(_readings(reads)):
            source = reading.reads[0].made.header.tolerant
            gone = [] if source is None else ledger.left_out.get(source, [])
            reports += _reports(reading, number, np.array(gone, np.int64))
    return LedgerReport(
        epochs=tuple(reports),
        jobs=len({one.job for passes in ledger.rounds for one in passes}),
        rounds=len(ledger.rounds),
        no_tape=tuple(dict.fromkeys(_absent(kept))),
        not_covered=ledger.not_covered,
        lacking=ledger.lacking,
    )


def committed(rounds: Iterable[Sequence[Pass]]) -> list[_Read]:
    """Returns what is in the final weights, in the order of the script.

    Args:
      rounds: the passes of each round.
    """
    kept: list[_Read] = []
    for passes in rounds:
        here: list[_Read] = []
        for made in passes:
            for one in here:
                if one.made.header.data == made.header.data:  # the script went on, so that was over
                    one.end = one.made.taken
            if made.header.how == "passed":
                for one in kept:
                    if _is_same_training(one.made, made):
                        _settle(one, one.made.taken)
                continue
            kept = [one for one in kept if not _is_taken_back(one.made, made)]
            for one in kept:
                if _is_same_training(one.made, made):
                    _settle(one, made.begin)
            here.append(_Read(made, made.done))
        kept += here
    kept = [one for one in kept if one.end > one.made.begin or one.made.header.how == "resumed"]
    return sorted(kept, key=_in_the_script)


def _settle(one: _Read, place: Place) -> None:
    """A later round goes on from `place`: what was taken up to there counts."""
    one.end = min(place, one.end if one.is_settled else one.made.taken)
    one.is_settled = True


def _is_same_training(earlier: Pass, later: Pass) -> bool:
    one, other = earlier.header, later.header
    return (one.trains, one.call, one.data) == (other.trains, other.call, other.data)


def _is_taken_back(earlier: Pass, later: Pass) -> bool:
    """Whether a later round, in reading `later`, has begun before all that `earlier` read."""
    if later.header.trains and earlier.header.call > later.header.call:
        return True
    return _is_same_training(earlier, later) and earlier.begin >= later.begin


def _in_the_script(one: _Read) -> tuple:
    made = one.made
    return made.header.call, not made.header.trains, made.job, made.round, made.number


def _check_same_data(name: str, reads: Sequence[_Read], where: str) -> None:
    first = reads[0].made.header
    for one in reads:
        for what in ("samples", "seed", "shuffle", "by"):
            then, now = getattr(first, what), getattr(one.made.header, what)
            if then != now:
                reason = (
                    f"{name} is not the same data everywhere: {what} is {then} in round "
                    f"{reads[0].made.round}, {now} in round {one.made.round}"
                )
                raise errors.bad_ledger(where, None, reason)


def _readings(reads: Sequence[_Read]) -> list[_Reading]:
    found: list[_Reading] = []
    for one in reads:
        made, begin = one.made, one.made.begin
        if not found or begin < found[-1].spans[-1][1]:
            found.append(_Reading([[begin, begin]]))
        spans = found[-1].spans
        if begin > spans[-1][1] and made.header.how == "sought":
            spans.append([begin, begin])
        elif begin > spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], made.left)
            if made.left < begin:
                spans.append([begin, begin])
        spans[-1][1] = max(spans[-1][1], one.end)
        found[-1].reads.append(one)
    return found


def _reports(
    reading: _Reading, number: int, unreadable: NDArray[np.int64]
) -> Iterator[EpochReport]:
    header = reading.reads[0].made.header
    samples = header.samples
    order = Order(samples=samples, seed=header.seed, shuffle=header.shuffle)
    parts = [part for one in reading.reads for part in _parts(one)]
    epochs = {epoch for epoch, *_ in parts}
    for begin, end in reading.spans:
        epochs.update(range(begin[0], end[0] + (end[1] > 0)))
    for epoch in sorted(epochs):
        here = sorted((part for part in parts if part[0] == epoch), key=lambda part: part[1][0])
        spans = [part[3] for part in here]
        steps = {int(step) for part in here for step in part[1]}
        read_spans = np.concatenate(spans) if spans else np.empty((0, 2), np.int64)
        wanted = _wanted(reading.spans, epoch, samples)
        missing, twice = compared(wanted, read_spans)
        gone = _those_of(unreadable, order, epoch, wanted)
        yield EpochReport(
            data=header.data,
            reading=number,
            epoch=epoch,
            samples=samples,
            expected=_size(wanted) - len(gone),
            consumed=_size(read_spans) - len(gone),
            duplicates=_samples(order, epoch, twice),
            missing=_samples(order, epoch, missing),
            duplicate_count=_size(twice),
            missing_count=_size(missing),
            steps=len(steps),
            complete=bool(len(wanted)) and int(wanted[-1, 1]) == samples,
            worlds=tuple(dict.fromkeys(size for _, _, size, _ in here)),
            by_position=header.by == "position",
            left_out=tuple(gone[:NAMED].tolist()),
            left_out_count=len(gone),
        )


def _parts(one: _Read) -> Iterator[tuple[int, NDArray[np.int64], int, Spans]]:
    """Yields epoch, each step's first position, world size, and positions that count of a pass."""
    batch, samples = one.made.header.batch, one.made.header.samples
    for ranges in one.made.ranges.values():
        for part in ranges:
            first = part.step * batch
            steps = part.taken if part.epoch < one.end[0] else -(-(one.end[1] - first) // batch)
            steps = min(part.taken, steps) if part.epoch <= one.end[0] else 0
            if steps > 0:
                further = batch * np.arange(steps, dtype=np.int64)
                begins = part.begin + further[: steps if part.count else 0]
                spans = np.stack([begins, np.minimum(begins + part.count, samples)], axis=1)
                yield part.epoch, first + further, one.made.header.size, spans


def _wanted(spans: Iterable[Sequence[Place]], epoch: int, samples: int) -> Spans:
    found = []
    for begin, end in spans:
        first = 0 if begin[0] < epoch else begin[1] if begin[0] == epoch else samples
        last = samples if end[0] > epoch else end[1] if end[0] == epoch else 0
        if first < min(last, samples):
            found.append((first, min(last, samples)))
    return np.array(found, np.int64).reshape(-1, 2)


def compared(wanted: Spans, spans: Spans) -> tuple[Spans, Spans]:
    """Returns what of `wanted` lies in none of the spans, and what lies in more than one."""
    edges = np.unique(np.concatenate([wanted, spans]))
    pieces = np.stack([edges[:-1], edges[1:]], axis=1)  # between two neighbours nothing changes

    def times(of: Spans) -> NDArray[np.int64]:
        begins, ends = (np.bincount(np.searchsorted(edges, e), None, len(edges)) for e in of.T)
        return np.cumsum(begins - ends)[:-1]

    read = times(spans)
    return pieces[(times(wanted) > 0) & (read == 0)], pieces[read > 1]


def _size(spans: Spans) -> int:
    return int((spans[:, 1] - spans[:, 0]).sum())


def _samples(order: Order, epoch: int, spans: Spans) -> tuple[int, ...]:
    named: list[int] = []
    for begin, end in spans.tolist():
        room = NAMED - len(named)
        if room <= 0:
            break
        named += order.indices(epoch, begin, min(end, begin + room)).tolist()
    return tuple(named)


def _those_of(
    samples: NDArray[np.int64], order: Order, epoch: int, spans: Spans
) -> NDArray[np.int64]:
    """Returns those of some samples, in order, that stand in some spans of an epoch."""
    if not len(samples):
        return samples
    found = [
        np.intersect1d(samples, order.indices(epoch, place, min(end, place + PIECE)))
        for begin, end in spans.tolist()
        for place in range(begin, end, PIECE)
    ]
    return np.unique(np.concatenate(found)) if found else samples[:0]


def _absent(kept: Iterable[_Read]) -> Iterator[str]:
    for one in kept:
        made = one.made
        for rank in sorted(set(range(made.header.size)) - set(made.ranges)):
            if made.taken > made.begin:
                yield f"worker {rank} of round {made.round} of job {made.job}"
