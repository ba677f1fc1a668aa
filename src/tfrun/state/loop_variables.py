"""The Python variables that a loop of the script's own carries from step to step: counts, the best.

A loop does not give them to its `TrainState`, so they begin anew where the script runs again. Which
ones that concerns the loop's code tells: those that it reads before it sets them, and that have
changed since the loop began.
"""

from __future__ import annotations

import dis
import itertools
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from tfrun.data import global_random
from tfrun.data.generator_states import GENERATORS
from tfrun.engine.script_lines import script_frame
from tfrun.state.held_values import Held, as_now, is_large


class LoopVariables:
    """Those of one loop, and of the loops of the script's calls that have led to it."""

    def __init__(self) -> None:
        self._calls: list[_OfCall] = []

    def runs_in(self, frame: FrameType | None) -> None:
        """The loop begins, or goes on, in a call of the script's; None for when it is over."""
        known = {id(call.frame): call for call in self._calls}
        self._calls = []
        while (frame := script_frame(frame)) is not None:
            self._calls.append(known.get(id(frame)) or _OfCall(frame))
            frame = frame.f_back

    def changed(self) -> list[str]:
        """The names of those that hold something else than when the loop began."""
        return sorted({name for call in self._calls for name in call.changed()})


class _OfCall:
    """Those that one call carries through its loops."""

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame
        self._names = carried(frame.f_code, frame.f_lasti)
        for name in sorted(self._names):
            value = frame.f_locals.get(name, frame.f_globals.get(name))
            if isinstance(value, GENERATORS):  # goes on as the global ones do
                global_random.know(f"{frame.f_code.co_name}/{name}", value)
        self._first = self._seen()

    def changed(self) -> Iterator[str]:
        now = self._seen()
        return (n for n, first in self._first.items() if n in now and _differs(first, now[n]))

    def _seen(self) -> dict[str, Any]:
        there = self.frame.f_locals if self._names else {}
        return {
            name: _seen(there[name])
            for name in self._names
            if name in there and not isinstance(there[name], GENERATORS)
        }


def _seen(value: Any) -> Any:
    """What tells whether a value is another one later; None where nobody can know."""
    if type(value).__name__ == "EagerTensor":  # it may not be computed yet
        return id(value), value
    if is_large(value):
        return len(value)
    return as_now(value, "")


def _differs(first: Any, now: Any) -> bool:
    if first is None or now is None:
        return False
    if isinstance(first, Held) and isinstance(now, Held):
        return not now.is_as(first)
    return first != now if isinstance(first, int) else first[:1] != now[:1]


def carried(code: CodeType, at: int) -> frozenset[str]:
    """The variables that a loop reads before it sets them, and sets or reads in each turn.

    Args:
      code: what has the loop in it.
      at: an instruction of the loop; the outermost one around it counts.
    """
    every = list(dis.get_instructions(code))
    turns = [
        (one.argval, one.offset)
        for one in every
        if "JUMP" in one.opname and isinstance(one.argval, int) and one.argval <= at <= one.offset
    ]
    if not turns:
        return frozenset()
    begin, end = min(begin for begin, _ in turns), max(end for _, end in turns)
    inside = [one for one in every if begin <= one.offset <= end]
    first: dict[str, str] = {}
    for what, name in (use for one in inside for use in _uses(one)):
        first.setdefault(name, what)
    return frozenset(name for name, what in first.items() if what == "LOAD")


def _uses(instruction: dis.Instruction) -> Iterator[tuple[str, str]]:
    """Each variable that an instruction reads ("LOAD") or sets ("STORE"), in that order.

    From Python 3.13 on one may do two of these: LOAD_FAST_LOAD_FAST, STORE_FAST_LOAD_FAST.
    """
    parts = instruction.opname.split("_")
    kinds = {"FAST", "NAME", "GLOBAL", "DEREF"}
    whats = [
        what
        for what, kind in itertools.pairwise(parts)
        if what in ("LOAD", "STORE") and kind in kinds
    ]
    value = instruction.argval
    names = value if isinstance(value, tuple) else (value,)
    return ((w, n) for w, n in zip(whats, names, strict=False) if isinstance(n, str))
