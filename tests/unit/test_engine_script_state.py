"""What a script keeps outside of its models is found, and known again in its next run."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from tfrun.data.order import repeatable
from tfrun.engine import script_state
from tfrun.engine.multi_worker import MultiWorkerMirrored
from tfrun.patches.apply import apply


@pytest.fixture(autouse=True)
def begins(monkeypatch: pytest.MonkeyPatch) -> None:
    apply()
    monkeypatch.setattr(script_state, "made", [])
    script_state._at_line.clear()


def run_of_a_script() -> list[object]:
    plain = [tf.Variable(float(number)) for number in range(2)]
    return [
        *plain,
        keras.Variable(1.0),
        keras.random.SeedGenerator(3),
        tf.random.Generator.from_seed(5),
    ]


def test_what_a_line_makes_has_the_same_name_in_each_run():
    kept = run_of_a_script()
    names = list(script_state.found([]))
    assert len(names) == len(kept) == len(set(names))
    assert all(name.startswith("script/test_engine_script_state.py:") for name in names)
    script_state.made.clear()
    script_state._at_line.clear()
    again = run_of_a_script()
    assert list(script_state.found([])) == names and again


def test_what_is_gone_or_belongs_to_a_model_is_none_of_it():
    layer = keras.layers.Dropout(0.5)
    tf.Variable(1.0)  # nobody has it any more
    assert len(script_state.found([])) == 1
    assert not script_state.found(layer.variables)
    assert len(keras.layers.Dense(1).variables) == 0


def test_large_data_is_none_of_it_unless_it_is_assigned():
    data = tf.Variable(tf.zeros([1 << 19]))
    assert not script_state.found([])
    data.assign_add(tf.ones([1 << 19]))
    (found,) = script_state.found([]).values()
    assert found.value is data


def test_what_a_pipeline_draws_from_is_none_of_it():
    """It is made again when the pipeline is passed by."""
    noise = keras.layers.GaussianNoise(0.5, seed=1)
    dataset = tf.data.Dataset.range(3).map(
        lambda x: noise(tf.cast(x, tf.float32)[tf.newaxis], training=True)
    )
    assert repeatable.draws_from_layers(dataset) and not repeatable.draws_in_parallel(dataset)
    assert repeatable.moves_while_read(dataset) and not repeatable.gives_the_same(dataset)
    assert len(script_state.found([])) == 1
    assert not repeatable.note_assigned(dataset)
    assert not script_state.found([])
    assert repeatable.note_assigned(dataset), "it is begun once more"


def test_python_of_the_script_in_a_step_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_state, "calls_python", False)
    strategy = MultiWorkerMirrored()

    def nothing() -> None:
        tf.numpy_function(lambda: 0.0, [], tf.float64)

    nothing()  # in no step
    strategy.run(lambda: tf.constant(0))
    assert not script_state.calls_python
    strategy.run(tf.function(nothing, autograph=False))
    assert script_state.calls_python
