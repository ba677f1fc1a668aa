"""The ledger: which samples each step has consumed, and the proof that each was so once.

A tape is a file of JSON lines, one file for each worker, round and pass:

    {"data": "data0", "samples": 60000, "batch": 256, "key": [1, true], "epoch": 0, "step": 0,
     "round": 0, "rank": 1, "size": 2}
    {"e": 0, "s": 0, "b": 128, "n": 128}

The first line says who reads, from where on, and the key (seed, shuffled) of the permutation; the
others, that positions [b, b + n) of epoch e's order were consumed in step s. A line is written
when the step is over. A later round that begins at an earlier step takes back what came after
that step: the state that had learned from it is gone.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrun.data.position import Position
from tfrun.job.world import world

if TYPE_CHECKING:
    from tfrun.data.dataset import Dataset
    from tfrun.data.pipeline import Replicas

SWITCH = "TFRUN_LEDGER"
_passes: Counter[str] = Counter()


class Tape:
    """Writes one worker's part of one pass; does nothing without a path."""

    def __init__(
        self, dataset: Any, replicas: Any, path: Path | None, header: dict[str, Any]
    ) -> None:
        self._dataset, self._replicas = dataset, replicas
        self._path, self._header = path, header
        self._file: Any = None

    def consumed(self, epoch: int, step: int) -> None:
        """Notes that a step is over."""
        if self._path is None:
            return
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Line by line, so that a killed worker leaves what it has done.
            self._file = self._path.open("w", buffering=1, encoding="utf-8")
            self._write(self._header)
        begin, end = self._dataset.share(step, self._replicas)
        self._write({"e": epoch, "s": step, "b": begin, "n": end - begin})

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, separators=(",", ":")) + "\n")


def no_tape() -> Tape:
    """Returns a tape that writes nothing."""
    return Tape(None, None, None, {})


def open_tape(dataset: Dataset, place: Position, replicas: Replicas) -> Tape:
    """Returns the tape of a pass that begins at `place`; written when TFRUN_LEDGER is set."""
    here, run_dir = world(), os.environ.get("TFRUN_RUN_DIR")
    header = {
        "data": dataset.name,
        "samples": dataset.samples,
        "batch": dataset.batch_size,
        "key": list(dataset.key),
        "epoch": place.epoch,
        "step": place.step,
        "round": here.round,
        "rank": replicas.first // replicas.count,
        "size": replicas.total // replicas.count,
    }
    path = None
    _passes[dataset.name] += 1  # the same on all workers, as they make the same calls
    if run_dir and os.environ.get(SWITCH, "0") not in ("", "0"):
        name = (
            f"{dataset.name}-{here.round:05}-{_passes[dataset.name]:05}-{header['rank']:05}.jsonl"
        )
        path = Path(run_dir, "ledger", name)
    return Tape(dataset, replicas, path, header)
