"""A worker dies while the others are in the workers' start, where they hear of nothing."""

from __future__ import annotations

from test_recovery_control import events, run

from conftest import Jobs


def test_one_that_waits_for_the_dead_in_the_workers_start_is_not_waited_for(jobs: Jobs) -> None:
    result = run(
        jobs,
        "import ctypes\n"
        "from tfrun.process import progress\n"
        "if round == 0 and rank == 1:\n"
        "    meet()\n    die()\n"
        "if round == 0:\n"
        "    with progress.workers_start():\n"
        "        meet()\n"
        "        ctypes.PyDLL(None).sleep(60)\n"  # as TensorFlow does, with Python's lock held
        "print('end', flush=True)\n",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "end\n"
    assert "worker 1 killed by SIGKILL; restarted from the beginning" in result.stderr
    (recovered,) = events(jobs, "recovered")
    assert recovered["seconds"] < 20  # it would hold the lock for 60
