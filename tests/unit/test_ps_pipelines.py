"""Pipelines that each worker runs for its part: what is left of them, and in which order."""

from __future__ import annotations

from types import SimpleNamespace

import tensorflow as tf

from tfrun.data.keras.fit_plan import Resume
from tfrun.ps.pipelines import Layer, PipelineFeed, _split
from tfrun.ps.server_step import mark_of


class Coordinator:
    """Of workers without GPUs."""

    strategy = SimpleNamespace(extended=SimpleNamespace(_num_gpus_per_worker=0))


def test_what_was_trained_is_counted_on_or_left_out() -> None:
    layers: list[Layer] = [{"workers": 4, "done": [1, 2, 3, 4]}, {"workers": 2, "done": [5, 6]}]
    assert _split(layers, 2, whole=True) == (layers[:1], [5, 6])
    assert _split(layers, 3, whole=True) == (layers, [0, 0, 0])
    assert _split(layers, 3, whole=False) == ([], [0, 0, 0])
    assert _split([], 2, whole=True) == ([], [0, 0])


def test_other_workers_read_what_is_left_of_a_pipeline() -> None:
    data = tf.data.Dataset.range(20)
    layers: list[Layer] = [{"workers": 3, "done": [2, 0, 5]}, {"workers": 2, "done": [1, 3]}]
    feed = PipelineFeed(data, None, 2, None, Resume(steps=7, pipeline=tuple(layers[:1])))
    feed.done = [1, 3]
    assert feed.layers == layers
    read = {0, 3} | {2, 5, 8, 11, 14}
    left = [number for number in range(20) if number not in read]
    read |= {left[0], left[1], left[3], left[5]}
    again = PipelineFeed(data, None, 3, None, Resume(steps=11, pipeline=tuple(layers)))
    again.open(Coordinator, 0)
    parts = [[int(one) for _, one in again.iterator(worker)] for worker in range(3)]
    assert parts[0][0] == min(set(range(20)) - read)
    assert sorted(one for part in parts for one in part) == sorted(set(range(20)) - read)


def test_each_epoch_of_a_pipeline_has_an_order_of_its_own_also_where_it_is_resumed() -> None:
    data = tf.data.Dataset.range(40).shuffle(40, seed=3)

    def epochs(feed: PipelineFeed, count: int) -> list[list[int]]:
        found = []
        for number in range(count):
            feed.open(Coordinator, number)
            found.append([int(one) for _, one in feed.iterator(1)])
        return found

    whole = epochs(PipelineFeed(data, None, 2), 3)
    assert len({tuple(epoch) for epoch in whole}) == 3
    resumed = PipelineFeed(data, None, 2, None, Resume(epochs=2))
    assert epochs(resumed, 1) == whole[2:]
    layers = ({"workers": 2, "done": [0, 4]},)
    within = PipelineFeed(data, None, 2, None, Resume(epochs=1, steps=4, pipeline=layers))
    assert epochs(within, 2) == [whole[1][4:], whole[2]]


def test_workers_agree_on_the_order_of_a_shuffle_without_a_seed() -> None:
    data = tf.data.Dataset.from_tensor_slices(list(range(40))).shuffle(40).batch(2)
    feeds = [PipelineFeed(data, None, 2) for _ in range(2)]
    for feed in feeds:
        feed.open(Coordinator, 0)
    parts = [[one.numpy().tolist() for _, one in feed.iterator(n)] for n, feed in enumerate(feeds)]
    read = [number for part in parts for pair in part for number in pair]
    assert sorted(read) == list(range(40)) and read != sorted(read)


def test_an_element_has_its_mark_whenever_it_is_read() -> None:
    """A worker that was started again names its elements as its first life has."""
    feed = PipelineFeed(tf.data.Dataset.range(10), None, 2)
    feed.open(Coordinator, 70)
    marks = [(int(mark), int(one)) for mark, one in feed.iterator(1)]
    assert marks == [(mark_of(70 + k, 1), 1 + 2 * k) for k in range(5)]
    feed.read(1)
    feed.read(1)
    feed.failed(1)
    assert [(int(mark), int(one)) for mark, one in feed.iterator(1)] == marks[2:]
    assert feed.next_number > 71
