"""Tells which stated options have no effect on a loop that is the script's alone.

What is saved, kept and compared is what `fit` or a `tfrun.TrainState` trains. A loop without either
trains as well as any other, but nothing of it is in a checkpoint: who has asked for one is told so
at the first update of an optimizer, and not when the machine is gone.
"""

from __future__ import annotations

import os

from tfrun.engine import script_place
from tfrun.engine.keras_optimizer import at_first_update
from tfrun.job import doubts
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.state import numbered_calls

CODE = "TFRUN-514"
# The options of what tfrun does at the steps of a training that it knows.
OPTIONS = (
    *("checkpoint_dir", "checkpoint_every", "evaluator", "keep", "snapshot_every"),
    *("steps_per_execution", "sync_check"),
)


def watch() -> None:
    """Has the first update tell, where an option is stated that may be without effect."""
    stated = os.environ.get("TFRUN_STATED", "").split()
    without = [option for option in OPTIONS if option in stated]
    if without and channel.is_open() and world().role in ("chief", "worker"):
        at_first_update.append(lambda: _tell(without))


def _tell(options: list[str]) -> None:
    if numbered_calls.have_begun():
        return
    names = " and ".join("--" + option.replace("_", "-") for option in options)
    where = f" ({here})" if (here := script_place.here()) else ""
    text = (
        f"{names} {'has' if len(options) == 1 else 'have'} no effect on this loop{where}: it "
        "is neither `fit` nor that of a `tfrun.TrainState`; make one for its model and optimizer "
        "before the first step, and take the steps from `state.steps(dataset)`"
    )
    channel.emit(doubts.REPORT, code=CODE, text=text)
