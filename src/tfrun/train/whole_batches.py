"""Runs an `evaluate` or `predict` on whole batches on each worker, where a part would not do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tfrun.data.keras import feed
from tfrun.engine import across_samples, adopted_script, steps_in_turn
from tfrun.engine.local_mode import on_own_batch
from tfrun.job.world import world
from tfrun.train.coordination import SharedStop

_KNOWN = "_tfrun_whole_batches"  # of each call of a model, by name, whether it needs them


def are_needed(call: inspect.BoundArguments, original: Callable[..., Any]) -> bool:
    """Whether this worker knows of a call that it needs whole batches: it has been so before.

    Args:
      call: of a model.
      original: Keras's `evaluate` or `predict`.
    """
    model, name = call.arguments["self"], original.__name__
    # Nobody looks through what is computed eagerly.
    eager = name == "predict" and steps_in_turn.runs_eagerly(model)
    return eager or _known(model).get(name, False)


def run(
    strategy: Any, call: inspect.BoundArguments, original: Callable[..., Any], needed: bool
) -> Any:
    """Runs it on a part of each batch on each worker, if that comes to the same.

    It begins a second time where its first step is seen to need whole batches: callbacks then have
    been told of one more beginning.

    Args:
      strategy: that the model shares with other workers.
      call: with a list of callbacks.
      original: Keras's `evaluate` or `predict`.
      needed: on some worker `are_needed`.
    """
    model, name = call.arguments["self"], original.__name__
    known = _known(model)
    if not needed:
        data = (call.arguments.get(each) for each in ("x", "y", "sample_weight"))
        again = name not in known and feed.reads_again(*data)
        look = across_samples.Look(
            call=f"model.{name}", begins_again=again, for_losses=name == "evaluate"
        )
        try:
            with across_samples.looking(strategy, look):
                results = original(*call.args, **call.kwargs)
            if look.has_seen:
                known[name] = bool(look.where)
            return results
        except across_samples.ComputedAcross:
            adopted_script.tell(
                f"model.{name}: what {look.where} computes for a sample depends on the other "
                "samples of its batch, so each worker computes all of them"
            )
    known[name] = True
    # All of them decide alike, and reach the end together.
    callbacks = call.arguments["callbacks"]
    callbacks[:] = [each for each in callbacks if not isinstance(each, SharedStop)]
    with on_own_batch(strategy, model):
        results = original(*call.args, **call.kwargs)
        if world().rank != 0:  # what they count is added up over the workers
            for metric in model.metrics:
                metric.reset_state()
    return results


def run_validation(strategy: Any, model: Any, validate: Callable[[], Any]) -> Any:
    """Runs a validation of `fit`, of parts of each batch; tells where that is something else."""
    look = across_samples.Look(call="the validation of model.fit", begins_again=False)
    with across_samples.looking(strategy, look):
        results = validate()
    if look.where:
        _known(model)["evaluate"] = True
    return results


def _known(model: Any) -> dict[str, bool]:
    if not hasattr(model, _KNOWN):
        object.__setattr__(model, _KNOWN, {})  # past Keras's tracking
    return getattr(model, _KNOWN)
