"""Finds workers that train alone, and options without effect, at the first update of a training.

That is an optimizer's of Keras, or the first gradients by variables where a script updates them
itself.

A script that makes no strategy, or one of a single process, trains the whole job on each worker
under `-n 2`: the same training twice, the same files twice, and nothing is faster. Who shares a
training has its strategy by then.

And what is saved, kept and compared is what `fit` or a `tfrun.TrainState` trains. A loop without
either trains as well as any other, but nothing of it is in a checkpoint: who has asked for one is
told so here, and not when the machine is gone.
"""

from __future__ import annotations

import json
import os

import tensorflow as tf

from tfrun.engine import outside_run, script_calls
from tfrun.engine.gradient_sums import at_first_update
from tfrun.job import reports
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.state import numbered_calls

ALONE, OWN_LOOP = "TFRUN-511", "TFRUN-514"
# The options of what tfrun does at the steps of a training that it knows.
OPTIONS = (
    *("checkpoint_dir", "checkpoint_every", "evaluator", "keep", "snapshot_every"),
    *("shard_optimizer", "steps_per_execution", "sync_check"),
)


def watch() -> None:
    """Has the first update tell, in a worker that trains."""
    here = world()
    if not channel.is_open() or here.role not in ("chief", "worker"):
        return
    config = os.environ.get("TF_CONFIG", "")
    if here.size > 1 and not json.loads(config or "{}").get("cluster", {}).get("ps"):
        at_first_update.append(lambda: _tell_alone(here.size, config))
        outside_run.at_first_gradient.append(
            lambda: _tell_alone(here.size, config, by_optimizer=False)
        )
    stated = settings().stated
    if without := [option for option in OPTIONS if option in stated]:
        at_first_update.append(lambda: _tell_own_loop(without))


def _tell_alone(size: int, config: str, *, by_optimizer: bool = True) -> None:
    if script_calls.last_collective() is not None:
        return  # it has met the others: what it trains alone is its own affair
    changed = os.environ.get("TF_CONFIG", "") != config
    fix = _fix(changed, by_optimizer=by_optimizer)
    text = f"{size} workers each train the whole job alone{_where()}: {_why(changed)}; {fix}"
    channel.emit(reports.DoubtRaised(code=ALONE, text=text))


def _fix(changed: bool, *, by_optimizer: bool) -> str:
    if changed:
        return "leave TF_CONFIG as it is"
    if settings().strategy == "script":
        return "leave out --strategy script, so that it gets the job's"
    if not by_optimizer:
        return "have `strategy.run` of a `tfrun.strategy()` make the step, or train by model.fit"
    return "write `with tfrun.strategy().scope():` around the model, its optimizer and compile"


def _tell_own_loop(options: list[str]) -> None:
    if numbered_calls.have_begun():
        return
    names = " and ".join("--" + option.replace("_", "-") for option in options)
    text = (
        f"{names} {'has' if len(options) == 1 else 'have'} no effect on this loop{_where()}: it "
        "uses neither `fit` nor a `tfrun.TrainState`. Make a TrainState for its model and "
        "optimizer before the first step, and take the steps from `state.steps(dataset)`"
    )
    channel.emit(reports.DoubtRaised(code=OWN_LOOP, text=text))


def _where() -> str:
    return f" ({here})" if (here := script_calls.here()) else ""


def _why(changed: bool) -> str:
    if changed:
        return "the script has taken TF_CONFIG out of its environment, or changed it"
    if not tf.distribute.has_strategy():
        return "this script makes no strategy"
    name = type(tf.distribute.get_strategy()).__name__
    known = ("MirroredStrategy", "OneDeviceStrategy", "CentralStorageStrategy")
    public = next((public for public in known if public.startswith(name[:8])), name)
    return f"{public} is a strategy of one process"
