"""Another thread than the training's sees a state that is whole, or none."""

from __future__ import annotations

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrun.data.keras.fit_plan import FitPlan
from tfrun.engine.commit import Commit, unless_updated
from tfrun.state.fit_keeper import FitKeeper
from tfrun.state.save_on_preemption import Moving, Preemptible
from tfrun.state.snapshot import Place, Snapshot

KEPT = Snapshot(
    place=Place(step=5),
    values={"random": 1},
    arrays={"model/0/kernel": np.zeros(3), "callbacks/0/seen": np.zeros(1)},
)


def commit() -> Commit:
    steps, begun = tf.Variable(4, dtype=tf.int64), tf.Variable(4, dtype=tf.int64)
    return Commit(steps=steps, begun=begun, totals=tf.Variable(tf.zeros([0])), metrics=[])


def test_nothing_is_seen_while_an_update_is_on_its_way() -> None:
    counts = commit()
    assert unless_updated(counts, lambda: "seen") == "seen"
    # One begins, and ends, while it is looked at.
    assert unless_updated(counts, lambda: counts.begun.assign_add(1)) is None
    assert unless_updated(counts, lambda: "in the middle") is None
    counts.steps.assign_add(1)
    assert unless_updated(counts, lambda: "after it") == "after it"


def test_one_worker_alone_tells_nothing_of_the_middle_of_a_step() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    keeper = FitKeeper(model, None, [], None, FitPlan(), call=0)
    keeper.epoch_begins(0)
    keeper.step_begins()
    assert keeper.state_aside() is None
    keeper.step_returned(1, {})
    kept = keeper.state_aside()
    assert kept is not None and kept.place == Place(step=1)


@pytest.mark.parametrize(
    ("second", "is_taken"),
    [
        (replace(KEPT, arrays={**KEPT.arrays, "callbacks/0/seen": np.ones(1)}), True),
        (replace(KEPT, values={"random": 2}), True),
        (replace(KEPT, place=Place(step=6)), False),
        (replace(KEPT, arrays={**KEPT.arrays, "model/0/kernel": np.ones(3)}), False),
        (replace(KEPT, arrays={}), False),
        (None, False),
    ],
)
def test_two_looks_have_to_be_the_same(second: Snapshot | None, is_taken: bool) -> None:
    looks = [KEPT, second]
    training = Preemptible(lambda: pytest.fail("nothing is saved"), lambda: looks.pop(0))
    try:
        assert training.take() is None  # it rests: there is no step yet
        training.moves()
        with pytest.raises(Moving):
            training.take()
        if is_taken:
            assert training.take() is second
        else:
            with pytest.raises(Moving):
                training.take()
    finally:
        training.close()
