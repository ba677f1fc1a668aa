"""Why two runs most likely differ, in one line. Pure."""

from __future__ import annotations

from tfrun.tools.parity.compare import Comparison, Parting

_RANDOM = "seed_generator_state"
_STATISTICS = ("moving_mean", "moving_variance")


def advice(comparison: Comparison, *, has_random_layers: bool) -> str:
    """Returns the line; "" for runs that are equal.

    Args:
      comparison: of two runs.
      has_random_layers: the model has dropout or another layer that draws random numbers.
    """
    parting = comparison.parting
    if parting is None:
        if comparison.equal:
            return ""
        return (
            "The runs made different numbers of steps: something in the script (steps_per_epoch, a "
            "shard, a batch) depends on the number of workers. The global batch should not."
        )
    if parting.step == 0:
        if all(d.name.endswith("learning_rate") for d in parting.differences):
            return (
                "The learning rate depends on the number of workers. The global batch stays the "
                "same in tfrun, and so should the rate."
            )
        return (
            "They differ before the first step: the variables are initialised with a seed that "
            "tfrun does not set (the time, os.urandom, the rank), or the model depends on the "
            "number of workers."
        )
    if parting.before:
        growth = max(d.weight for d in parting.differences) / parting.before
        if growth < 10:
            return (
                "The difference has grown slowly from step to step, as rounding does: sums are "
                "added in another order. --tolerance sets how much of it is none."
            )
    return _sudden(parting, has_random_layers)


def _sudden(parting: Parting, has_random_layers: bool) -> str:
    variables = [d for d in parting.differences if d.kind != "log"]
    logs = [d for d in parting.differences if d.kind == "log"]
    if variables and all(d.name.endswith(_STATISTICS) for d in variables) and not logs:
        return (
            "Only BatchNormalization's statistics differ: each worker normalises its own part of "
            "the batch. BatchNormalization(synchronized=True) takes the whole one."
        )
    if has_random_layers and (logs or any(_RANDOM in d.name for d in variables)):
        return (
            "The model draws random numbers (dropout, noise, augmentation), and each worker draws "
            "its own. To compare the rest, switch that layer off, or make the numbers a function "
            "of the sample: tfrun.Dataset.map(f) with a parameter `seed`."
        )
    if logs:
        return (
            "The loss of a step differs from equal weights: it saw other samples (a batch or a "
            "shard by rank, a shuffle without seed), or the loss is not a mean over the batch. "
            "Let tfrun.Dataset, or `fit` itself, share the global batch out."
        )
    if parting.step > 1 and parting.before:
        return (
            "All steps before it are equal but for rounding, and so is its loss: something begins "
            "here to depend on the number of workers (a schedule, a callback, clipping that did "
            "not bite before). If it goes no further, rounding was amplified by an activation at "
            "its kink: --tolerance sets how much of it is none."
        )
    return (
        "The loss is equal and the update is not: the gradients are added up otherwise (a sum "
        "instead of a mean, clipping on each worker), or the learning rate depends on the number "
        "of workers."
    )
