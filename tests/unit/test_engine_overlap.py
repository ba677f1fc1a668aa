"""What is summed together, and in which order, while the backward pass still runs."""

from __future__ import annotations

import threading

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tfrun.collective.collective import Collective
from tfrun.engine.counted_after import travelling
from tfrun.engine.host_collective_ops import Calls
from tfrun.engine.overlap import PACK_BYTES, OneThread, packs_of


@given(st.lists(st.none() | st.integers(0, 100)), st.integers(1, 150))
def test_every_tensor_is_in_one_pack_and_the_last_come_first(
    sizes: list[int | None], limit: int
) -> None:
    packs = packs_of(sizes, limit, most=1000)
    order = [i for pack in packs for i in pack]
    known = [i for i in order if sizes[i] is not None]
    assert sorted(order) == [*range(len(sizes))]
    assert known == sorted(known, reverse=True)
    assert order[len(known) :] == sorted(set(order) - set(known))  # these come at the end
    for pack in packs[:-1]:
        held = [sizes[i] or 0 for i in pack]
        assert sum(held) >= limit > sum(held[:-1])


def test_one_after_the_other_and_an_error_belongs_to_one() -> None:
    thread, may_go, order = OneThread(), threading.Event(), []

    def first() -> str:
        may_go.wait(10)
        order.append(1)
        return "done"

    def fails() -> None:
        order.append(2)
        raise OSError("gone")

    futures = [thread.submit(one) for one in (first, fails, lambda: order.append(3))]
    assert not any(future.done() for future in futures)
    may_go.set()
    assert futures[0].result(10) == "done"
    with pytest.raises(OSError, match="gone"):
        futures[1].result(10)
    assert futures[2].result(10) is None
    assert order == [1, 2, 3]


def test_what_may_be_exchanged_until_the_step_is_traced_comes_last() -> None:
    """Metrics that count after the update need what must not wait for another pack."""
    calls = Calls(Collective(0, {}, 1), overlaps=True)
    packs = []

    @tf.function(autograph=False)
    def step(large: tf.Tensor) -> tf.Tensor:
        totals, _ = travelling(tf.zeros([1, 4]))
        packs.extend(calls._packs([large, large + 1.0, totals]))
        return totals

    step.get_concrete_function(tf.TensorSpec([PACK_BYTES // 4]))
    assert packs == [[1], [0, 2]]
