"""What workers measure beside the time of their steps, and contenders by parts of their names."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import DidNotRun, those_that_run

Contender = Callable[[], Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one run of a contender gave.

    Attributes:
      steps: milliseconds a step of each epoch but the first.
      first_step: seconds from the command to the end of the first step, of the last worker.
      memory: bytes of the worker that had most.
      sent: bytes a step that one worker sent, of each of those epochs.
    """

    steps: Sequence[float]
    first_step: float
    memory: int
    sent: Sequence[float]


@contextmanager
def quantities(*, apart: bool) -> Iterator[Callable[[Sequence[float]], Measured]]:
    """Those who run within write down their quantities; yields what reads them afterwards.

    Args:
      apart: each worker has a network of its own, and so counts its own bytes alone.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BENCH_QUANTITIES"] = folder
        try:
            yield functools.partial(_read, Path(folder), apart)
        finally:
            del os.environ["BENCH_QUANTITIES"]


def in_turn(
    these: Mapping[str, Contender], repeats: int, *, apart: bool = False
) -> tuple[dict[str, list[Measured]], dict[str, str]]:
    """Runs all by turns; who cannot be installed or fails is left out, with the reason."""
    measured = {name: functools.partial(_measured, run, apart) for name, run in these.items()}
    found, not_run = those_that_run(measured, repeats)
    for name, reason in not_run.items():
        print(f"  {name}: not run: {reason}")
    return found, not_run


def _measured(run: Contender, apart: bool) -> Measured:
    with quantities(apart=apart) as read:
        return read(run())


def chosen(these: Mapping[str, Contender], wanted: Sequence[str]) -> dict[str, Contender]:
    """Those of which a wanted text is the name, or else a part of it."""
    found: dict[str, Contender] = {}
    for text in wanted:
        names = [n for n in these if n == text] or [n for n in these if text.lower() in n.lower()]
        if not names:
            raise SystemExit(f"No contender is called {text!r}. There are: {'; '.join(these)}")
        found |= {n: these[n] for n in names}
    return found


def _read(folder: Path, apart: bool, steps: Sequence[float]) -> Measured:
    ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*.json"))]
    if not ranks:
        raise DidNotRun("no worker has written down what it measured")
    for one in ranks:
        if len(one["sent"]) != one["epochs"] or len(steps) != one["epochs"] - 1:
            made = f"{len(one['sent'])} epochs of {one['epochs']} are in one process"
            raise DidNotRun(f"a worker started again meanwhile: {made}")
    epochs = list(zip(*(one["sent"] for one in ranks), strict=True))[1:]
    many = len(ranks) * (1 if apart else len(ranks))
    return Measured(
        steps=steps,
        first_step=max(one["first_step"] for one in ranks),
        memory=max(one["memory"] for one in ranks),
        sent=[sum(epoch) / many for epoch in epochs],
    )
