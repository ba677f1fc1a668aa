"""Where a process is in Slurm, from environments as Slurm 22.05 makes them."""

from __future__ import annotations

import pytest

from tfrun.cluster.slurm import Allocation, SlurmStep, own_gpus, parse_tasks, slurm_place
from tfrun.job.errors import TfrunError
from tfrun.launcher.slurm.commands import agent_environment, hostnames, labelled, srun_agents

BATCH = {
    "SLURM_JOB_ID": "2",
    "SLURM_NODELIST": "n[1-11]",
    "SLURM_JOB_NODELIST": "n[1-11]",
    "SLURM_TASKS_PER_NODE": "64(x11)",  # whole nodes: their CPUs
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURMD_NODENAME": "n1",
}
STEP = {
    **BATCH,
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "n[2,10]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURMD_NODENAME": "n10",
}
ELEVEN = tuple(f"n{number}" for number in range(1, 12))


def expand(text: str) -> list[str]:
    return {"n[1-11]": list(ELEVEN), "n[2,10]": ["n2", "n10"], "n1": ["n1"]}[text]


def test_outside_there_is_no_place():
    assert slurm_place({}, expand) is None
    assert slurm_place({"SLURM_CONF": "/etc/slurm.conf"}, expand) is None


def test_a_batch_script_has_its_nodes_in_the_order_of_scontrol():
    place = slurm_place(BATCH, expand)
    assert isinstance(place, Allocation)
    assert [name for name, _ in place.nodes] == list(ELEVEN)  # not n1, n10, n11, n2, …
    assert place.slots(None) == tuple((name, 1) for name in ELEVEN)
    assert (place.job, place.here, place.restarts) == ("2", "n1", 0)


def test_workers_are_spread_over_the_nodes_when_no_tasks_are_stated():
    place = slurm_place({**BATCH, "SLURM_NODELIST": "n[2,10]"}, expand)
    assert isinstance(place, Allocation)
    assert place.slots(3) == (("n2", 2), ("n10", 2))
    assert place.here == ""  # this process is on none of them


@pytest.mark.parametrize("name", ["SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"])
def test_stated_tasks_are_workers(name):
    stated = {"SLURM_NODELIST": "n[2,10]", "SLURM_TASKS_PER_NODE": "2,1", name: "3"}
    place = slurm_place({**BATCH, **stated}, expand)
    assert isinstance(place, Allocation)
    assert place.slots(None) == place.slots(9) == (("n2", 2), ("n10", 1))


def test_a_requeued_job_knows_how_often():
    place = slurm_place({**BATCH, "SLURM_RESTART_COUNT": "3"}, expand)
    assert place is not None and place.restarts == 3


def test_a_task_of_a_step():
    place = slurm_place(STEP, expand)
    assert place == SlurmStep(
        **{"job": "2", "step": "3", "nodes": (("n2", 2), ("n10", 1))},
        **{"rank": 2, "here": "n10", "local": 0},
    )
    assert isinstance(place, SlurmStep)
    assert place.agents == (("n2.0", "n2"), ("n2.1", "n2"), ("n10", "n10"))
    assert place.agent == "n10"


def test_a_step_of_one_task_is_one_process():
    single = {"SLURM_STEP_NODELIST": "n1", "SLURM_STEP_TASKS_PER_NODE": "1"}
    assert slurm_place({**STEP, **single}, expand) is None


@pytest.mark.parametrize("step", ["4294967290", "4294967291"])
def test_the_shell_of_salloc_and_the_batch_step_are_no_steps(step):
    assert isinstance(slurm_place({**BATCH, "SLURM_STEP_ID": step}, expand), Allocation)


@pytest.mark.parametrize(
    "wrong",
    [
        {"SLURM_STEP_TASKS_PER_NODE": "2"},
        {"SLURM_STEP_TASKS_PER_NODE": "2(x2"},
        {"SLURM_STEP_TASKS_PER_NODE": "1(x999999999)"},
        {"SLURM_PROCID": "one"},
        {"SLURMD_NODENAME": "n3"},
        {"SLURM_STEP_ID": "x"},
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(TfrunError) as caught:
        slurm_place({**STEP, **wrong}, expand)
    assert caught.value.code == "TFRUN-211"


def test_numbers_of_tasks():
    assert parse_tasks("2(x3),1", where="") == [2, 2, 2, 1]


GPUS = {
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "1",
}


@pytest.mark.parametrize(
    ("change", "gpus"),
    [
        ({}, "2,3"),
        ({"SLURM_LOCALID": "0"}, "0,1"),
        ({"SLURM_GPUS_PER_TASK": "1"}, None),
        ({"SLURM_GPU_BIND": "closest"}, None),
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, None),
        ({"CUDA_VISIBLE_DEVICES": "0"}, None),
        ({"CUDA_VISIBLE_DEVICES": ""}, None),
    ],
)
def test_gpus_are_only_shared_out_where_slurm_has_not(change, gpus):
    assert own_gpus({**GPUS, **change}) == gpus


def test_one_agent_a_node_whatever_the_tasks_were_to_be():
    command = srun_agents(["n2", "n10"])
    assert command[0] == "srun" and "--ntasks=2" in command
    assert "--nodelist=n2,n10" in command
    given = {"SLURM_NTASKS": "8", "SLURM_NTASKS_PER_NODE": "4", "SLURM_GPUS_PER_TASK": "1"}
    kept = {"SLURM_JOB_ID": "2", "SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin"}
    assert agent_environment({**given, **kept}) == kept


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("0: text", (0, "text")),
        (" 10: a: b", (10, "a: b")),
        ("3: ", (3, "")),
        ("srun: error: n2: task 1: Exited", (None, "srun: error: n2: task 1: Exited")),
    ],
)
def test_what_srun_labels(line, parts):
    assert labelled(line) == parts


def test_without_scontrol_names_are_expanded_here(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert hostnames("n[1-3],m[08-09]") == ["n1", "n2", "n3", "m08", "m09"]
    with pytest.raises(TfrunError, match="TFRUN-211"):
        hostnames("n[1-")
