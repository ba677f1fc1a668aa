"""Says what a script keeps outside of its models that does not go on where it was."""

from __future__ import annotations

from collections.abc import Mapping
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
    new = [line for line in script_state.drawing if line and line not in _told]
    if not new or not world().is_chief:
        return
    _told.extend(new)
    text = (
        f"the step draws random numbers by an op of TensorFlow's that begins anew in each process "
        f"({', '.join(new)}): from here on they are not those of an undisturbed run; use "
        "`keras.random` with a SeedGenerator, or a tf.random.Generator, whose states are kept"
    )
    channel.emit(reports.WorkerNotice(text=text))


def tell_missing(there: Mapping[str, Any], kept: Snapshot) -> None:
    """Says of which variables of the script's own the state is not given back.

    Args:
      there: those that the script has made when its training goes on, by name.
      kept: the state that it goes on from.
    """
    missing = [name for name in kept.arrays if name.startswith(PREFIX) and name not in there]
    new = [name for name in missing if name not in _told]
    if not new or not world().is_chief:
        return
    _told.extend(new)
    lines = ", ".join(dict.fromkeys(name.split("/")[1] for name in new))
    text = (
        f"what the script makes at {lines} after its training has begun (a seed generator or a "
        "variable that no model holds) begins anew: the numbers from here on are not those of an "
        "undisturbed run; have the script make it before `fit`"
    )
    channel.emit(reports.WorkerNotice(text=text))
