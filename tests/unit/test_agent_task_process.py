"""What a process that waits is told of its place is what a new one of that task starts with."""

from __future__ import annotations

from tfrun.agent.task_process import new_process, place
from tfrun.control.protocol.messages import StartTask
from tfrun.job.settings import VARIABLE, WorkerSettings
from tfrun.job.spec import JobSpec, Program


def test_a_place_has_the_environment_of_a_new_process() -> None:
    job = JobSpec(program=Program(target="t.py"), run_dir="/run")
    settings = WorkerSettings.of(job, state_dir="/state", collective_key="k3")
    task = StartTask(
        **{"task": "worker:1", "runs": "script", "show": False, "muted": False, "terminal": None},
        **{"called": "worker 1", "awaits": []},
        environment={"RANK": "1", "TFRUN_ROUND": "3", "TF_CONFIG": "{}"},
        settings={"ledger": 2},
        takes="successor:0",
    )
    new = new_process(task, job, settings, {"PATH": "/bin"}, {"CUDA_VISIBLE_DEVICES": "0"})
    told = place(3, task, settings)
    assert new["environment"] == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "0",
        **told["environment"],
    }
    assert told["settings"] == {"task": "worker:1", "collective_key": "k3", "ledger": 2}
    read = WorkerSettings.from_json(told["environment"][VARIABLE])
    assert (read.task, read.ledger, read.rehearses, told["number"]) == ("worker:1", 2, False, 3)
