"""Several replicas of one process run one traced step: they share weights, and nothing else."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import tensorflow as tf

from tfrun.collective.collective import Collective
from tfrun.collective.errors import Disagreement, PeerGone
from tfrun.collective.summation_order import maximal_nodes
from tfrun.data.global_random import Drawn
from tfrun.engine import host_collective_ops, script_state
from tfrun.engine.calls_in_turn import CallsInTurn
from tfrun.engine.host_collective_ops import Sum
from tfrun.engine.trained_model import returned_with
from tfrun.engine.turns import Turns


@pytest.fixture(params=[1, 2, 3, 5])
def calls(request) -> CallsInTurn:
    members = Collective(0, {}, 1)
    members.hold([range(request.param)])
    return CallsInTurn(members, Turns(range(request.param), request.param, 1))


def test_each_replica_has_its_own_number_and_assigns_for_itself(calls):
    turns, weight, own = calls.turns, tf.Variable(0), tf.Variable(10)
    traces = []

    @tf.function
    def step(values):
        traces.append(1)
        value = values.get_next()
        with tf.control_dependencies([value]):  # as a step's batch: each reads in its turn
            number = turns.number()
        own.assign_add(number)  # what the others assign is not seen here
        (sums,) = calls.all_reduce(Sum(tensors=[own.read_value()]))
        (mean,) = calls.update(
            Sum(tensors=[tf.ones([], tf.int32), sums]), [1], lambda all: weight.assign_add(all[0])
        )
        own.assign(mean // turns.total)
        return number, own.read_value(), value

    count = turns.total
    numbers = iter(tf.data.Dataset.range(100))
    for step_number in range(1, 4):
        number, after, value = turns.run(step, [numbers] * count)
        assert int(number) == 0 and int(value) == (step_number - 1) * count  # the first one's
        assert int(weight) == step_number * count  # once for all
    expected = 10
    for _ in range(3):
        expected = (expected * count + sum(range(count))) * count // count
    assert int(after) == int(own) == expected and len(traces) == 1


def test_all_end_where_one_fails_and_the_next_step_runs(calls):
    turns, weight = calls.turns, tf.Variable(0.0)
    fails = tf.Variable(turns.total - 1)

    @tf.function
    def step(_):
        bad = tf.equal(turns.number(), fails)
        check = tf.debugging.Assert(tf.logical_not(bad), ["this one fails"])
        with tf.control_dependencies([check]):
            one = tf.ones([])
        calls.update(Sum(tensors=[one]), [], lambda sums: weight.assign_add(sums[0]))
        return one

    given = [tf.zeros([])] * turns.total
    with pytest.raises(tf.errors.InvalidArgumentError, match="this one fails"):
        turns.run(step, given)
    assert float(weight) == 0
    fails.assign(-1)
    turns.run(step, given)
    assert float(weight) == turns.total


def test_each_sum_begins_when_the_last_replica_has_handed_in(each_by_itself):
    """In a thread of its own, while the step goes on; and what a step leaves is in no other one."""
    members = Collective(0, {}, 1)
    members.hold([range(3)])
    calls = CallsInTurn(members, Turns(range(3), 3, 1), overlaps=True)
    turns, weight, sums = calls.turns, tf.Variable([0.0, 0.0]), members.all_reduce_parts
    summed, fails = [], tf.Variable(1)

    def notes(parts, *args, **more):
        summed.append((threading.current_thread().name, float(parts[0][0])))
        return sums(parts, *args, **more)

    members.all_reduce_parts = notes  # type: ignore[method-assign]

    @tf.function(autograph=False)
    def step(value):
        mine = value * tf.cast(1 + turns.number(), tf.float32)
        check = tf.debugging.Assert(turns.number() != fails, ["this one fails"])
        with tf.control_dependencies([check]):
            late = 2 * mine
        calls.update(Sum(tensors=[late, mine]), [], lambda all: weight.assign_add(tf.stack(all)))

    with pytest.raises(tf.errors.InvalidArgumentError, match="this one fails"):
        turns.run(step, [tf.constant(5.0)] * 3)
    assert not summed  # some have handed in, and not all
    fails.assign(-1)
    for times in (1, 2):
        turns.run(step, [tf.constant(10.0)] * 3)
        np.testing.assert_array_equal(weight.numpy(), [120.0 * times, 60.0 * times])
        assert summed == [("tfrun-collective", 60.0), ("tfrun-collective", 120.0)] * times


@pytest.mark.parametrize("fails", [0, 1, 3])
@pytest.mark.parametrize("then", range(1, 7))
@pytest.mark.parametrize("first", [2, 5, 6])
def test_what_a_cut_off_step_has_handed_in_is_in_no_other_one(first, then, fails):
    """Whoever holds how many in the next one: who sums goes on, and hands in first."""
    total, members = 6, Collective(0, {}, 1)
    members.hold([range(total)])
    calls = CallsInTurn(members, Turns(range(first), total, 1, total))
    turns, failing = calls.turns, tf.Variable(fails % first)
    handed = []  # what would travel
    members.all_reduce_parts = lambda parts, *_, **__: handed.append(parts) or parts[0]  # type: ignore
    members.all_gather_parts = lambda parts: handed.append([p[0] for p in parts]) or [parts[0]]  # type: ignore

    @tf.function
    def step(value):
        mine = value + tf.cast(turns.number(), tf.float32)
        with tf.control_dependencies([calls.all_reduce(Sum(tensors=[mine]))[0]]):
            bad = tf.equal(turns.number(), failing)
            check = tf.debugging.Assert(tf.logical_not(bad), ["this one fails"])
        with tf.control_dependencies([check]):
            two = calls.all_reduce(Sum(tensors=[2 * mine]))[0]
        with tf.control_dependencies([two]):
            return calls.all_gather([mine[None]], [0])[0]

    with pytest.raises(tf.errors.InvalidArgumentError, match="this one fails"):
        turns.run(step, [tf.constant(100.0)] * first)
    turns.hold(range(then))
    failing.assign(-1)
    del handed[:]
    turns.run(step, [tf.constant(10.0)] * then)
    expected = [sum(10 + n for n in range(*node)) for node in maximal_nodes(range(then), total)]
    sums, doubled, gathered = [[float(np.ravel(part)[0]) for part in parts] for parts in handed]
    assert sums == expected and doubled == [2 * value for value in expected]
    assert gathered == [10.0 + n for n in range(then)]


@pytest.fixture
def each_by_itself(monkeypatch) -> None:
    """Where sums begin early, each tensor is summed by itself, the last one first."""
    packs = lambda sizes: [[i] for i in reversed(range(len(sizes)))]  # noqa: E731
    monkeypatch.setattr(host_collective_ops, "packs_of", packs)


@pytest.mark.parametrize("early", [False, True], ids=["together", "early"])
@pytest.mark.parametrize("gone", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("own", [[0], [1], [2], [0, 1], [1, 2], [0, 1, 2]], ids=str)
def test_a_step_whose_peers_are_gone_goes_on_with_what_it_has_computed(
    own, gone, early, each_by_itself
):
    total, members = 3, Collective(0, {}, 1)
    members.hold([range(total)])
    calls = CallsInTurn(members, Turns(own, total, 1, total), overlaps=early)
    turns, weight, counted = calls.turns, tf.Variable(0.0), tf.Variable(0)
    sums, computed, left = members.all_reduce_parts, [], [gone]

    def fails_first(*args, **more):
        if left[0]:
            raise PeerGone(1, "gone")
        return sums(*args, **more)

    members.all_reduce_parts = fails_first  # type: ignore[method-assign]

    @tf.function(autograph=False)
    def step(values):
        number, mine = turns.number(), tf.cast(values.get_next(), tf.float32)
        told = tf.numpy_function(
            lambda *own: computed.append(own) or own[0], [number, mine], tf.int32
        )
        with tf.control_dependencies([told, counted.assign_add(1 + number)]):
            mine = tf.identity(mine)
        calls.update(
            Sum(tensors=[mine, 10 * mine]),
            [],
            lambda found: weight.assign_add(tf.where(found[1] == 10 * found[0], found[0], -1.0)),
        )
        (again,) = calls.all_reduce(Sum(tensors=[tf.ones([])]))
        return number, again

    def go_on():
        assert turns.are_taken
        left[0] -= 1
        making = list(turns.held)
        now = (
            range(total) if not left[0] else range(min(2, min(own)), total) if 0 not in own else own
        )
        turns.hold(now)
        assert turns.held[: len(making)] == making
        for place in range(len(making), len(turns.held)):
            assert turns.copies.fills(place, {id(counted.handle): np.int32(7)})
        return iter(tf.data.Dataset.range(min(now), total))  # each replica's batch is its number

    turns.go_on = go_on
    values = iter(tf.data.Dataset.range(own[0], total))
    number, again = turns.run(step, [values] * len(own))
    assert turns.held == [0, 1, 2] and (int(number), float(again)) == (0, 3.0)
    assert sorted((int(n), float(batch)) for n, batch in computed) == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert float(weight) == 3.0
    # Each stands where it belongs: those that came began with 7.
    assert [int(one) for one in turns.apart(counted)] == [
        1 + n + (0 if n in own else 7) for n in range(total)
    ]
    turns.run(step, [iter(tf.data.Dataset.range(total))] * total)  # as any other
    assert float(weight) == 6.0 and len(computed) == 6


def test_a_step_that_has_summed_does_not_go_on_when_a_peer_goes():
    members = Collective(0, {}, 1)
    members.hold([range(2)])
    calls = CallsInTurn(members, Turns([0], 2, 1, 2))
    left = [1]

    def fails_second(*args, **more):
        if not left:
            raise PeerGone(1, "gone")
        left.pop()
        return [tensor[0] for tensor in args[0]]

    members.all_reduce_parts = fails_second  # type: ignore[method-assign]
    calls.turns.go_on = lambda: pytest.fail("asked")

    @tf.function(autograph=False)
    def step(values):
        mine = tf.cast(values.get_next(), tf.float32)
        calls.update(Sum(tensors=[mine]), [], lambda found: None)
        return calls.update(Sum(tensors=[mine]), [], lambda found: None)

    with pytest.raises(tf.errors.InvalidArgumentError, match="gone"):
        calls.turns.run(step, [iter(tf.data.Dataset.range(2))])


def test_rows_of_all_replicas_are_gathered_in_their_order(calls):
    turns = calls.turns

    @tf.function
    def step(_):
        mine = tf.repeat(turns.number(), turns.number() + 1)
        return calls.all_gather([mine], [0])[0]

    found = turns.run(step, [tf.zeros([])] * turns.total)
    assert found.numpy().tolist() == [n for n in range(turns.total) for _ in range(n + 1)]


def test_the_end_of_the_data_is_the_end_for_all(calls):
    turns = calls.turns

    @tf.function
    def step(values):
        return calls.all_reduce(Sum(tensors=[values.get_next()]))[0]

    values = iter(tf.data.Dataset.range(turns.total))
    assert int(turns.run(step, [values] * turns.total)) == sum(range(turns.total))
    with pytest.raises(tf.errors.OutOfRangeError):
        turns.run(step, [values] * turns.total)


def test_replicas_that_part_are_told_and_do_not_wait_for_ever(calls):
    turns = calls.turns
    if turns.total == 1:
        pytest.skip("one replica differs from nobody")

    @tf.function
    def step(_):
        if tf.equal(turns.number(), 0):
            return calls.all_reduce(Sum(tensors=[tf.ones([])]))[0]
        return tf.zeros([])

    with pytest.raises((Disagreement, tf.errors.InvalidArgumentError), match="replicas of one"):
        turns.run(step, [tf.zeros([])] * turns.total)


def test_what_python_draws_in_a_step_is_what_a_replica_of_its_own_worker_draws(calls, monkeypatch):
    turns, drawn = calls.turns, {"before": [], "besides": [], "update": []}
    monkeypatch.setattr(script_state, "calls_python", True)
    monkeypatch.setattr(Drawn, "by_steps", True)

    @tf.function
    def step(_):
        def python(where, wanted):
            def draw(place, _):
                with turns.python_of(int(place)):
                    drawn[where].append(np.random.rand() + random.random())
                    return np.float64(0.0)

            return tf.numpy_function(draw, [turns.place(), wanted], tf.float64)

        before = python("before", 0.0)
        (found,) = calls.all_reduce(Sum(tensors=[before]))
        # By then each replica has had a second turn, or nobody has.
        besides = python("besides", before)
        calls.update(Sum(tensors=[found]), [], lambda sums: python("update", besides))
        return before, besides

    np.random.seed(3)
    random.seed(3)
    for _ in range(2):
        turns.run(step, [tf.zeros([])] * turns.total)
    after = np.random.rand() + random.random()
    np.random.seed(3)
    random.seed(3)
    one = [np.random.rand() + random.random() for _ in range(7)]
    count = turns.total
    assert drawn["before"] == [one[0]] * count + [one[3]] * count
    assert drawn["besides"] == [one[1]] * count + [one[4]] * count
    assert drawn["update"] == [one[2], one[5]] and after == one[6]


@pytest.mark.parametrize("draws", [True, False])
def test_what_the_thread_that_reads_draws_meanwhile_is_not_taken_back(monkeypatch, draws):
    """Whether it is known to draw, or only that no Python does that a step calls."""
    monkeypatch.setattr(script_state, "calls_python", True)
    monkeypatch.setattr(Drawn, "by_steps", draws)
    monkeypatch.setattr(Drawn.now, "draws", draws)
    turns = Turns([0, 1], 2, 1)

    @tf.function
    def step(_):
        return tf.numpy_function(lambda: np.float64(random.random()), [], tf.float64)

    random.seed(3)
    turns.run(step, [tf.zeros([])] * 2)
    left = random.random()
    random.seed(3)
    assert left == [random.random() for _ in range(3)][-1]


def test_one_that_comes_to_hold_several_gives_each_its_own_and_takes_them_back():
    turns, own, traces = Turns([0], 3, 3, 3), tf.Variable(10), []

    @tf.function
    def step(values):
        traces.append(1)
        own.assign_add(turns.number())
        return turns.number(), own.read_value(), values.get_next()

    values = iter(tf.data.Dataset.range(100))
    first = 10
    for held in [(0,), (0, 1, 2), (2,), (1, 2), (1,)]:
        turns.hold(held, 1)
        for _ in range(2):
            result = turns.run(step, [values] * len(held))
            number, after, _ = result
            assert int(number) == held[0] and int(after) == first + held[0]
            # The first one's is what the others begin with.
            returned = [int(own_value) for _, own_value, _ in returned_with(turns, result)]
            assert returned == [first + number for number in held]
            first += held[0]
    assert int(own) == first and len(traces) == 1
    assert int(values.get_next()) == 2 * (1 + 3 + 1 + 2 + 1)
