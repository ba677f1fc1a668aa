"""Ranks, hosts and environments of the tasks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.cluster.address import Address
from tfrun.cluster.tasks import assign_tasks, cluster_of, environment_for
from tfrun.job.errors import UsageError
from tfrun.job.world import world_from_environment


def summary(tasks):
    return [(t.role, t.index, t.rank, t.host_index, t.local_rank, t.local_size) for t in tasks]


def test_workers_fill_the_hosts_in_order():
    assert summary(assign_tasks(3, slots_by_host=[("a", 2), ("b", 2)])) == [
        ("worker", 0, 0, 0, 0, 2),
        ("worker", 1, 1, 0, 1, 2),
        ("worker", 2, 2, 1, 0, 1),
    ]


def test_parameter_servers_bring_a_chief_and_take_no_slot():
    assert summary(assign_tasks(2, 3, slots_by_host=[("a", 1), ("b", 1)])) == [
        ("chief", 0, 0, 0, 0, 2),
        ("worker", 0, 1, 0, 1, 2),
        ("worker", 1, 2, 1, 0, 1),
        ("ps", 0, None, 0, None, 2),
        ("ps", 1, None, 1, None, 1),
        ("ps", 2, None, 0, None, 2),
    ]


def test_a_host_without_slots_is_passed_over():
    assert summary(assign_tasks(1, slots_by_host=[("a", 0), ("b", 1)])) == [
        ("worker", 0, 0, 1, 0, 1)
    ]


@pytest.mark.parametrize("hosts", [[], [("a", 1)], [("a", 1), ("b", 0)]])
def test_too_few_slots(hosts):
    with pytest.raises(UsageError) as caught:
        assign_tasks(2, slots_by_host=hosts)
    assert caught.value.code == "TFRUN-103"


@given(
    slots=st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(any),
    ps=st.integers(0, 3),
    data=st.data(),
)
def test_ranks_are_dense_and_no_host_is_overfull(slots, ps, data):
    workers = data.draw(st.integers(1, sum(slots)))
    tasks = assign_tasks(workers, ps, slots_by_host=[(f"h{i}", n) for i, n in enumerate(slots)])
    trainers = [task for task in tasks if task.rank is not None]
    assert [task.rank for task in trainers] == list(range(workers + bool(ps)))
    assert sum(task.role == "ps" for task in tasks) == ps
    for host, count in enumerate(slots):
        here = [task for task in trainers if task.host_index == host]
        assert sum(task.role == "worker" for task in here) <= count
        assert [task.local_rank for task in here] == list(range(len(here)))
        assert all(task.local_size == len(here) for task in here)


def addresses(count):
    return [Address(host="127.0.0.1", port=2000 + i) for i in range(count)]


def test_the_environment_of_a_worker():
    tasks = assign_tasks(2, slots_by_host=[("a", 1), ("b", 1)])
    environment = environment_for(tasks[1], cluster_of(tasks, addresses(2)), 3, 2)
    assert json.loads(environment.pop("TF_CONFIG")) == {
        "cluster": {"worker": ["127.0.0.1:2000", "127.0.0.1:2001"]},
        "task": {"type": "worker", "index": 1},
    }
    assert environment == {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "TFRUN_ROUND": "3",
    }


def test_a_parameter_server_has_no_rank():
    tasks = assign_tasks(1, 1, slots_by_host=[("a", 1)])
    cluster = cluster_of(tasks, addresses(3))
    environment = environment_for(tasks[-1], cluster, 0, 2)
    assert "RANK" not in environment and "LOCAL_RANK" not in environment
    assert world_from_environment(environment).role == "ps"


@pytest.mark.parametrize("ps", [0, 1])
def test_each_task_reads_its_own_place_from_its_environment(ps):
    tasks = assign_tasks(3, ps, slots_by_host=[("a", 2), ("b", 2)])
    cluster = cluster_of(tasks, addresses(len(tasks)))
    for task in tasks:
        environment = environment_for(task, cluster, 5, 3 + ps)
        world = world_from_environment(environment)
        assert (world.role, world.size, world.round) == (task.role, 3 + ps, 5)
        assert world.is_chief == (task.rank == 0)
        if task.rank is not None:
            assert (world.rank, world.local_rank) == (task.rank, task.local_rank)
            assert world.local_size == task.local_size
