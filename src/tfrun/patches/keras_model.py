"""`model.fit`, `evaluate`, `predict`, the calls on one batch, and `compile`."""

from __future__ import annotations

import tensorflow as tf

from tfrun.engine import adopted_script, adoption, script_calls, steps_in_turn
from tfrun.engine.local_mode import in_local_mode
from tfrun.job.world import take_one_for_good
from tfrun.train import fit, on_batch

_LOOPS = {
    "fit": fit.run_fit,
    "evaluate": fit.run_evaluate,
    "predict": fit.run_predict,
    "train_on_batch": on_batch.run_train_on_batch,
    "test_on_batch": on_batch.run_on_batch,
    "predict_on_batch": on_batch.run_predict_on_batch,
}


def run_with_others(original):
    """Keras's loops run together with those of the other workers: see train/fit.py."""
    name = original.__name__
    run, is_on_batch = _LOOPS[name], name.endswith("_on_batch")
    function = name.replace("on_batch", "function")  # that it runs

    def method(self, *args, **kwargs):
        with script_calls.calling(f"model.{name}"):
            # Once its function is traced, it uses what it used then.
            settled = is_on_batch and getattr(self, function) is not None
            adopted_script.adopt(self)
            if not (settled and self._distribute_strategy is not None) and not in_local_mode():
                adoption.settle(self)
            if name in ("fit", "evaluate") and steps_in_turn.runs_eagerly(self):
                take_one_for_good(steps_in_turn.EAGER)  # before its data is divided
            return run(original, self, args, kwargs)

    return method


def adopt(original):
    """A model that is compiled in a strategy's scope is the strategy's: see engine/adoption.py."""

    def compile(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        if tf.distribute.has_strategy() and not in_local_mode():
            adoption.settle(self)
        return result

    return compile
