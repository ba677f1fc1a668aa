"""Which tf.data pipelines give the same elements when they are made again."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tfrun.data.order.repeatable import has_cache, warn_once, why_not


@pytest.fixture(autouse=True)
def no_seed() -> None:
    """Another test of this process may have stated one, of which TensorFlow then warns here."""
    tf.random.set_seed(None)


def base():
    return tf.data.Dataset.range(20)


def not_deterministic():
    options = tf.data.Options()
    options.deterministic = False
    return base().with_options(options)


def parts(number):
    return tf.data.Dataset.range(number, number + 3)


def noise(number):
    return tf.cast(number, tf.float32) + tf.random.uniform([])


def stateless(number):
    return tf.cast(number, tf.float32) + tf.random.stateless_uniform([], seed=[1, number])


def numbers():
    yield from range(5)


SAME = {
    "range": base,
    "shuffle": lambda: base().shuffle(20).batch(4),
    "parallel map": lambda: base().map(lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE),
    "interleave": lambda: base().interleave(parts, num_parallel_calls=2),
    "stateless": lambda: base().map(stateless),
    "repeat, cache, prefetch": lambda: base().cache().repeat(2).prefetch(2),
    "random": lambda: tf.data.Dataset.random(seed=1).take(3),
}
OTHER = {
    "options": (not_deterministic, "options.deterministic"),
    "map": (
        lambda: base().map(lambda x: x, num_parallel_calls=2, deterministic=False).batch(2),
        "does not keep the order",
    ),
    "interleave": (
        lambda: base().interleave(parts, num_parallel_calls=2, deterministic=False),
        "does not keep the order",
    ),
    "random map": (lambda: base().map(noise), "random numbers"),
    "random map within": (lambda: base().flat_map(lambda x: parts(x).map(noise)), "random numbers"),
    "generator": (
        lambda: tf.data.Dataset.from_generator(
            numbers, output_signature=tf.TensorSpec([], tf.int32)
        ),
        "Python",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_nothing_is_said_of_pipelines_that_come_again_the_same(name):
    assert why_not(SAME[name]()) == []


@pytest.mark.parametrize("name", OTHER)
def test_what_makes_a_pipeline_differ_is_named(name):
    make, reason = OTHER[name]
    (found,) = why_not(make())
    assert reason in found


def test_what_is_no_pipeline_is_not_looked_into():
    assert why_not(numbers()) == []
    assert not has_cache(None)


def test_a_cache_is_seen():
    assert has_cache(base().cache().shuffle(3))
    assert not has_cache(base())


def test_it_is_said_once_in_a_job(tmp_path, work_under, caplog):
    work_under(state_dir=str(tmp_path))
    for _ in range(2):
        warn_once(not_deterministic())
    (record,) = caplog.records
    assert "options.deterministic" in record.getMessage()
