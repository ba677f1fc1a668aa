"""A run for nothing leaves nothing, and does not happen where it would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tfrun.collective.collective import Collective
from tfrun.engine import script_state, warm_up
from tfrun.engine.calls_in_turn import CallsInTurn
from tfrun.engine.host_collective_ops import Sum
from tfrun.engine.loop_traces import Traces, structure_of
from tfrun.engine.turns import Turns

SPEC = tf.TensorSpec([2])


class Step:
    """A step that counts, draws, sums and updates, and whatever `does` does with its batch."""

    def __init__(self, replicas: int, does: Callable[[tf.Tensor], Any] = tf.identity) -> None:
        members = Collective(0, {}, 1)
        members.hold([range(replicas)])
        calls = CallsInTurn(members, Turns(range(replicas), replicas, 1))
        self.turns = calls.turns
        self.weight, self.slot, self.seen = tf.Variable(1.0), tf.Variable(2.0), tf.Variable(3.0)
        self.random = tf.random.Generator.from_seed(1)

        def update(sums: list[tf.Tensor]) -> None:
            self.weight.assign_add(sums[0])
            self.slot.assign_add(sums[0])

        def step(x: tf.Tensor) -> tf.Tensor:
            self.seen.assign_add(1.0)
            tf.debugging.assert_greater(self.random.uniform([]), -1.0)
            does(x)
            calls.update(Sum(tensors=[tf.reduce_sum(x) + 1.0]), [], update)
            return x

        self.call = Traces(step, step, structure_of(((tf.zeros(2),), {})), {}, calls)
        self.traced = self.call.traced_for((SPEC,))
        self.turns.copies.prepare_ahead(self.traced)

    def warm_up(self) -> None:
        warm_up.run(self.turns, self.call, [SPEC], {id(self.weight.handle)})

    @property
    def ran(self) -> bool:
        return float(self.weight) != 1


@pytest.mark.parametrize("replicas", [1, 2])
def test_it_runs_and_only_what_is_to_be_given_has_changed(replicas: int) -> None:
    step = Step(replicas)
    state = step.random.state.numpy().tolist()
    step.warm_up()
    assert float(step.weight) == 1 + replicas
    assert [float(step.slot), float(step.seen)] == [2, 3]
    assert step.random.state.numpy().tolist() == state
    # The run that others wait for is the first one.
    step.turns.run(step.call, [[tf.ones(2)]] * replicas)
    assert step.turns.seconds is None and float(step.slot) == 2 + 3 * replicas
    assert float(step.seen) == 4


TABLE = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
EFFECTS = {
    "prints": tf.print,
    "draws from a state of its own": lambda x: tf.random.uniform([]),
    "may never end": lambda x: tf.while_loop(
        lambda y: tf.reduce_all(y < 1), lambda y: (y * 2,), (x,)
    ),
    "fills a table": lambda x: TABLE.insert("key", 1),
    "writes a file": lambda x: tf.io.write_file("/dev/null", "x"),
    "does so in a function": tf.function(lambda x: [tf.print(x), x][1]),
    "does so in a branch": lambda x: tf.cond(
        tf.reduce_all(x < 1), lambda: [tf.print(x), 0][1], lambda: 0
    ),
}


@pytest.mark.parametrize("effect", EFFECTS)
def test_what_would_leave_more_does_not_run(effect: str, capfd: pytest.CaptureFixture[str]) -> None:
    step = Step(2, EFFECTS[effect])
    step.warm_up()
    assert not step.ran and float(step.seen) == 3
    assert capfd.readouterr().err == "" and int(TABLE.size()) == 0


def test_a_step_that_calls_the_scripts_python_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(1)
    monkeypatch.setattr(script_state, "calls_python", True)
    step.warm_up()
    assert not step.ran


def test_a_step_that_refuses_zeros_leaves_nothing_either() -> None:
    step = Step(2, lambda x: tf.debugging.assert_positive(x))
    step.warm_up()
    assert not step.ran and float(step.seen) == 3
    step.turns.run(step.call, [[tf.ones(2)]] * 2)
    assert step.ran and float(step.seen) == 4
