"""Reads the ledger of a run: was every sample of every epoch consumed exactly once?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfrun.data import errors
from tfrun.data.permutation import Order

NAMED = 20  # samples that a report names


@dataclass(frozen=True, kw_only=True)
class EpochReport:
    """What the ledger says about one epoch.

    Attributes:
      data: name of the dataset, "data0" for the first one that the script made.
      epoch: from 0.
      expected: samples that should have been consumed: those of the epoch, from where the run
        began, and of the last epoch only up to the last step.
      consumed: samples that were, each counted as often as it was.
      duplicates: samples (indices into the data) that were consumed more than once.
      missing: samples that were not consumed. Of both at most `NAMED` are named.
      complete: whether the epoch was finished.
      worlds: the world sizes of its steps, in order.
    """

    data: str
    epoch: int
    expected: int
    consumed: int
    duplicates: tuple[int, ...]
    missing: tuple[int, ...]
    complete: bool
    worlds: tuple[int, ...]

    @property
    def exact(self) -> bool:
        """Whether each expected sample was consumed exactly once."""
        return not self.duplicates and not self.missing and self.consumed == self.expected


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One worker's part of one step: positions [begin, begin + count) of the epoch's order."""

    epoch: int
    step: int
    begin: int
    count: int
    size: int


def verify(run_dir: str | Path) -> list[EpochReport]:
    """Returns a report for each dataset and epoch that the ledger of a run knows.

    Raises:
      UsageError: TFRUN-604 where the run has no ledger, TFRUN-607 where the data changed.
    """
    files = sorted(Path(run_dir, "ledger").glob("*.jsonl"))
    if not files:
        raise errors.no_file(str(Path(run_dir, "ledger")))
    tapes: dict[str, dict[tuple[str, str], list[tuple[dict, list[Entry]]]]] = {}
    for file in files:
        name, round_, number, _ = file.stem.rsplit("-", 3)
        tapes.setdefault(name, {}).setdefault((round_, number), []).append(read_tape(file))
    return [
        report
        for name, passes in tapes.items()
        for report in _reports(name, [passes[key] for key in sorted(passes)])
    ]


def read_tape(file: Path) -> tuple[dict[str, Any], list[Entry]]:
    """Returns a tape's header and entries; a last line that its writer's death cut off is none."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    size = records[0]["size"]
    return records[0], [
        Entry(epoch=r["e"], step=r["s"], begin=r["b"], count=r["n"], size=size) for r in records[1:]
    ]


def kept(passes: Sequence[tuple[tuple[int, int], Iterable[Entry]]]) -> list[Entry]:
    """Returns the entries that still count, of passes that each begin at (epoch, step).

    A pass that begins before the end of the earlier ones restored an older state: what these did
    from there on is void.
    """
    entries: list[Entry] = []
    for begin, new in passes:
        entries = [entry for entry in entries if (entry.epoch, entry.step) < begin]
        entries += new
    return entries


def _reports(name: str, passes: list[list[tuple[dict, list[Entry]]]]) -> Iterable[EpochReport]:
    header = passes[0][0][0]
    for tapes in passes:
        for other, _ in tapes:
            if any(other[field] != header[field] for field in ("samples", "batch", "key")):
                what = f"{name} is not the same data in all rounds"
                raise errors.bad_argument(what, "the ledger", "the same data, batch_size and seed")
    begins = [(tapes[0][0]["epoch"], tapes[0][0]["step"]) for tapes in passes]
    entries = kept(
        [
            (begin, [entry for _, tape in tapes for entry in tape])
            for begin, tapes in zip(begins, passes, strict=True)
        ]
    )
    samples, batch = header["samples"], header["batch"]
    seed, shuffle = header["key"]
    order = Order(samples=samples, seed=seed, shuffle=shuffle)
    last = max((entry.epoch for entry in entries), default=-1)
    for epoch in range(begins[0][0], last + 1):
        here = [entry for entry in entries if entry.epoch == epoch]
        first = begins[0][1] * batch if epoch == begins[0][0] else 0
        steps = max((entry.step for entry in here), default=-1) + 1
        end = min(steps * batch, samples) if epoch == last else samples
        counts = np.zeros(samples + 1, np.int64)
        for entry in here:
            counts[entry.begin] += 1
            counts[entry.begin + entry.count] -= 1
        counts = np.cumsum(counts[:-1])
        missing = np.flatnonzero(counts[first:end] == 0) + first
        twice = np.flatnonzero(counts > 1)
        yield EpochReport(
            data=name,
            epoch=epoch,
            expected=end - first,
            consumed=int(counts.sum()),
            duplicates=_samples(order, epoch, twice),
            missing=_samples(order, epoch, missing),
            complete=end == samples,
            worlds=tuple(dict.fromkeys(e.size for e in sorted(here, key=lambda e: e.step))),
        )


def _samples(order: Order, epoch: int, positions: np.ndarray) -> tuple[int, ...]:
    return tuple(int(order.indices(epoch, p, p + 1)[0]) for p in positions[:NAMED].tolist())
