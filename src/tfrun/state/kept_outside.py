"""Says what a script keeps outside of its models that does not go on where it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tfrun.engine import script_state
from tfrun.engine.script_state import PREFIX
from tfrun.job import reports
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.state.snapshot import Snapshot

_told: list[str] = []  # in this process


def tell_drawing() -> None:
    """Says of which ops that the first step of a training that goes on has the state is lost."""
    new = _to_tell(filter(None, script_state.drawing))
    if not new:
        return
    text = (
        "the step draws random numbers by TensorFlow ops that begin anew in each process "
        f"({', '.join(new)}), so from here on they are not those of an undisturbed run. Use "
        "`keras.random` with a SeedGenerator, or a tf.random.Generator: their states are kept"
    )
    channel.emit(reports.WorkerNotice(text=text))


def tell_missing(there: Mapping[str, Any], kept: Snapshot) -> None:
    """Says of which variables of the script's own the state is not given back.

    Args:
      there: those that the script has made when its training goes on, by name.
      kept: the state that it goes on from.
    """
    new = _to_tell(name for name in kept.arrays if name.startswith(PREFIX) and name not in there)
    if not new:
        return
    lines = ", ".join(dict.fromkeys(name.split("/")[1] for name in new))
    text = (
        f"the script makes a seed generator or a variable that no model holds at {lines}, after "
        "its training has begun. It begins anew, so the numbers from here on are not those of an "
        "undisturbed run. Make it before `fit`"
    )
    channel.emit(reports.WorkerNotice(text=text))


def _to_tell(those: Iterable[str]) -> list[str]:
    """Of these what nobody has been told of, which is told now; on the chief alone."""
    new = [one for one in those if one not in _told] if world().is_chief else []
    _told.extend(new)
    return new
