"""Says what a script keeps outside of its models that does not go on where it was."""

from __future__ import annotations

import gc
from collections.abc import Container, Iterable, Mapping
from typing import Any

import keras

from tfrun.engine import script_state, variable_values
from tfrun.engine.script_state import PREFIX
from tfrun.job import reports
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.state.snapshot import Snapshot

_MOST = 8  # names in a line
_told: list[str] = []  # in this process


def tell_of_ops() -> None:
    """Says of which ops that the first step of a training that goes on has the state is lost."""
    if new := _to_tell(script_state.drawing):
        where = ", ".join(filter(None, new)) or "in a library"
        text = (
            "the step draws random numbers by TensorFlow ops that begin anew in each process "
            f"({where}), so from here on they are not those of an undisturbed run. Use "
            "`keras.random` with a SeedGenerator, or a tf.random.Generator: their states are kept"
        )
        channel.emit(reports.WorkerNotice(text=text))
    if new := _to_tell(f"table at {line}" for line in script_state.tables):
        text = (
            f"the step changes a lookup {' and a '.join(new)}, which has begun anew with this "
            "process, so the numbers from here on are not those of an undisturbed run. Keep what "
            "a step counts in a tf.Variable"
        )
        channel.emit(reports.WorkerNotice(text=text))


def tell_not_given(kept: Container[int]) -> None:
    """Says which variables that step assigns that nobody knew of before it was traced.

    Args:
      kept: the ids of the variables that were given back.
    """
    if not world().is_chief:
        return
    names = [
        one.path
        for one in gc.get_objects()
        if issubclass(type(one), keras.Variable)
        and id(one) not in kept
        and one._value is not None
        and any(map(script_state.is_assigned_in_step, variable_values.copies(one)))
    ]
    own = _to_tell(n for n, v in script_state.assigned_in_steps().items() if id(v) not in kept)
    new = _to_tell(sorted(names)) + [f"the one of {name.split('/')[1]}" for name in own]
    if not new:
        return
    more = f" and {len(new) - _MOST} more" if len(new) > _MOST else ""
    text = (
        f"the step assigns variables that the training was not given: {', '.join(new[:_MOST])}"
        f"{more}. They began anew, so the numbers from here on are not those of an undisturbed "
        "run. Give their metrics, models and optimizers to the `TrainState`, or make them "
        "attributes of the model that `fit` trains; make variables of your own before both"
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
        "undisturbed run. Make it before `fit`, or before the `TrainState`"
    )
    channel.emit(reports.WorkerNotice(text=text))


def tell_lost(names: Iterable[str]) -> None:
    """Says what callbacks hold that has begun anew, by their names."""
    _tell(
        "callbacks hold what has begun anew with this process: {}. What it had come to, only "
        "itself knows. Give the callback `get_state()` and `set_state(state)`, or let it keep "
        "numbers, lists and arrays as attributes",
        names,
    )


def tell_of_loop(names: Iterable[str]) -> None:
    """Says which Python variables a loop of the script's own has carried, that have begun anew."""
    _tell(
        "the loop keeps {} in Python variables, which have begun anew with this process. Where it "
        "decides by them, give them to the `TrainState`, in an object with `get_state()` and "
        "`set_state(state)`",
        (f"`{name}`" for name in names),
    )


def _tell(text: str, those: Iterable[str]) -> None:
    """Says a text of those of these that nobody has been told of, if there are any."""
    if new := _to_tell(those):
        channel.emit(reports.WorkerNotice(text=text.format(", ".join(new[:_MOST]))))


def _to_tell(those: Iterable[str]) -> list[str]:
    """Of these what nobody has been told of, which is told now; on the chief alone."""
    new = [one for one in those if one not in _told] if world().is_chief else []
    _told.extend(new)
    return new
