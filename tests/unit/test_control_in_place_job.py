"""Rounds in place with real agents and real workers, which have no TensorFlow."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
from toy_job import QUICK, ToyJob, run_job

from tfrun.job.timeouts import Timeouts


def test_a_death_costs_the_others_nothing_and_a_successor_takes_the_place(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        await job.runs(2, 0)
        stays, gone = job.pid("worker:0"), job.pid("worker:1")
        job.kill("worker:1")
        await job.runs(1, 1)
        assert job.pid("worker:0") == stays
        await job.runs(2, 2)
        assert job.pid("worker:0") == stays and job.pid("worker:1") not in (stays, gone)
        await job.finish()
        begun = job.life("begins")
        assert len(begun) == 3 and [one["rehearses"] for one in begun] == [False, False, True]
        (recovered,), (grown,) = job.of("recovered"), job.of("grown")
        assert recovered["in_place"] and grown["in_place"]
        assert [e["state"] for e in job.of("successor")] == ["started", "ready", "taken"]
        assert job.runner.recovery.restarts.total == 1

    job = run_job(tmp_path, test)
    # These workers do not wait for each other: the one that dies may have been ahead, as is told.
    again = [line for line in job.told.notices if "again" in line]
    assert bool(again) == bool(job.of("recovered")[0]["lost_steps"])
    assert any("resumed in place at step" in line for line in job.told.notices)
    keys = {one["round"]: {e["key"] for e in job.life(round=one["round"])} for one in job.life()}
    assert all(len(found) == 1 for number, found in keys.items() if number)
    assert not psutil.pid_exists(job.life("begins")[-1]["pid"])


def starts(job: ToyJob) -> list[bool]:
    """Of each worker process that there was: whether it was a successor."""
    return [one["rehearses"] for one in job.life("begins")]


def test_deaths_in_pairs_again_and_again(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        await job.runs(4, 0)
        for victims in ("01", "12", "03", "23"):
            number, before = job.runner.round.number, job.processes()
            killed = job.kill(*(f"worker:{victim}" for victim in victims))
            await job.until(lambda: job.runner.round.number > number)  # noqa: B023
            left = before - set(killed)
            await job.until(lambda: {e["pid"] for e in job.life("placed")} >= left)  # noqa: B023
            await job.until(lambda: job.runner.plan.workers == 4)
            await job.runs(4)
            assert left <= job.processes()
        await job.finish()
        assert starts(job) == [False] * 4 + [True] * 8
        # Of each rank one, also where two went after one another.
        for number in {e["round"] for e in job.life("steps")}:
            ranks = [e["rank"] for e in job.life("steps", round=number)]
            assert len(ranks) == len(set(ranks))

    run_job(tmp_path, test, workers="4", slots={"a": 2, "b": 2})


def test_one_that_dies_while_it_waits_and_one_while_the_next_round_forms(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        await job.runs(3, 0)
        stays = job.pid("worker:0")
        (first,) = job.kill("worker:2")
        await job.until(lambda: job.life("placed", round=1))
        await job.until(lambda: job.of("worker_started", task="worker:1", round=1))
        job.kill("worker:1")  # perhaps before it has made a step
        await job.runs(3)
        assert job.pid("worker:0") == stays and first not in job.processes()
        await job.finish()

    run_job(tmp_path, test, workers="3")


def test_the_chief_that_dies_has_its_place_taken_by_the_next(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        await job.runs(3, 0)
        before = [job.pid(f"worker:{rank}") for rank in range(3)]
        job.kill("worker:0")
        await job.runs(2, 1)
        assert [job.pid("worker:0"), job.pid("worker:1")] == before[1:]
        log = tmp_path / "logs" / "worker-0.log"
        assert "--- round 1, in place ---" in log.read_text()
        await job.until(lambda: f"{before[1]} steps" in job.told.shown)
        assert f"{before[2]} " not in job.told.shown
        await job.runs(3, 2)
        await job.finish()

    run_job(tmp_path, test, workers="3")


def test_workers_that_cannot_stay_start_again(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        (job.folder / "cannot").touch()
        await job.runs(2, 0)
        job.kill("worker:1")
        await job.runs(2, 1)
        assert starts(job) == [False] * 4 and not job.of("successor")
        assert [e["in_place"] for e in job.of("recovered")] == [False]
        await job.finish()

    run_job(tmp_path, test)


def test_successors_that_fail_are_done_without_where_that_is_possible(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        (job.folder / "fails").touch()
        await job.runs(2, 0)
        job.kill("worker:1")
        await job.runs(1, 1)
        await job.until(lambda: job.of("successors_given_up"))
        assert job.runner.round.number == 1 and job.processes() == {job.pid("worker:0")}
        assert len(job.of("successor", state="ended")) == 3
        assert "it was told to fail" in job.told.notices[-1]
        assert "the job goes on without" in job.told.notices[-1]
        assert "it was told to fail" in (tmp_path / "logs" / "worker-1.log").read_text()
        assert "told to fail" not in job.told.shown
        await job.finish()

    run_job(tmp_path, test, workers="1:2", max_restarts=2)


def test_a_job_that_needs_them_starts_again(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        (job.folder / "fails").touch()
        await job.runs(2, 0)
        job.kill("worker:1")
        await job.runs(1, 1)
        await job.runs(2, 2)
        assert starts(job) == [False, False, True, True, True, False, False]
        assert any("all start again" in line for line in job.told.notices)
        assert len(job.life("leaves")) == 1  # the one that had stayed has kept its state
        resumed = [e for e in job.of("worker_report") if e["report"]["kind"] == "resumed"]
        assert len(resumed) == 2
        await job.finish()

    run_job(tmp_path, test, max_restarts=2)


def test_spares_are_ready_before_anybody_needs_them(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        await job.runs(2, 0)
        await job.until(lambda: job.of("successor", state="ready"))
        assert job.runner.round.number == 0
        job.kill("worker:1")
        await job.runs(2, 1)  # at once, without a round of fewer
        assert (await job.until(lambda: job.of("recovered")))[-1]["in_place"]
        await job.until(lambda: len(job.of("successor", state="ready")) == 2)
        await job.finish()
        assert starts(job) == [False, False, True, True]

    run_job(tmp_path, test, spares=1)


def test_a_machine_that_joins_restarts_nobody(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        await job.runs(2)
        stay = {job.pid("worker:0"), job.pid("worker:1")}
        job.start_agent("b")
        await job.runs(3)
        assert {job.pid("worker:0"), job.pid("worker:1")} == stay
        assert [e["in_place"] for e in job.of("grown")] == [True]
        assert any("b joined; resumed in place" in line for line in job.told.notices)
        await job.finish()
        assert starts(job) == [False, False, True] and not job.of("recovered")

    timeouts = {"settle": 0.2, "grow_after": 0.2, "start_timeout": 0.5}
    run_job(
        *(tmp_path, test),
        **{"workers": "1:3", "slots": {"a": 2, "b": 1}, "late": ("b",)},
        timeouts=Timeouts(heartbeat_interval=0.1, heartbeat_timeout=8.0, **timeouts),
    )


def test_a_machine_that_is_lost_and_one_that_is_preempted(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        await job.runs(3, 0)
        stays = job.pid("worker:0")
        job.agents["c"].kill()
        await job.runs(2, 1)
        job.agents["b"].terminate()  # SIGTERM: its machine is being preempted
        await job.runs(1, 2)
        assert job.pid("worker:0") == stays
        (preempted,) = await job.until(lambda: job.of("machine_preempted"))
        assert len(job.of("let_go")) == 1 and preempted["in_place"]
        job.start_agent("c")
        await job.runs(2, 3)
        await job.finish()
        assert starts(job) == [False] * 3 + [True]

    run_job(tmp_path, test, workers="1:3", slots={"a": 1, "b": 1, "c": 1})


def test_many_short_fits_do_not_give_up_successors(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        (job.folder / "slow").write_text("1.0")
        await job.runs(2, 0)
        job.kill("worker:1")
        await job.until(lambda: job.life("begins", rehearses=True))
        for call in range(1, 8):  # more than may fail
            (job.folder / "call").write_text(str(call))
            await job.until(lambda: job.runner.recovery.call == call)  # noqa: B023
            await asyncio.sleep(0.3)
        assert len(job.of("successor", state="started")) <= 4
        await job.runs(2)  # a longer one
        assert not job.of("successors_given_up") and not job.told.shown.count("again")
        assert starts(job).count(False) == 2
        await job.finish()

    run_job(tmp_path, test, max_restarts=2)


def test_a_spare_that_leaves_with_its_machine_is_replaced_elsewhere(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        await job.runs(2, 0)
        await job.until(lambda: job.of("standing_by", agent="b"))
        await asyncio.sleep(2 * QUICK.settle)  # then it is the emptier one
        (spare,) = await job.until(lambda: job.of("successor", state="started"))
        if spare["agent"] == "a":
            os.kill(spare["pid"], signal.SIGKILL)
        await job.until(lambda: job.of("successor", state="ready", agent="b"))
        before = len(job.of("successor", state="ready", agent="a"))  # the one that was killed
        job.agents["b"].terminate()
        await job.until(lambda: job.of("let_go", agent="b"))
        await job.until(lambda: len(job.of("successor", state="ready", agent="a")) > before)
        assert job.runner.round.number == 0  # nobody has left a round for it
        job.kill("worker:1")
        await job.runs(2, 1)
        assert (await job.until(lambda: job.of("recovered")))[-1]["in_place"]
        await job.finish()

    run_job(tmp_path, test, workers="1:2", slots={"a": 2, "b": 1}, spares=1)


def test_ctrl_c_leaves_nothing_running(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        (job.folder / "slow").write_text("30")
        await job.runs(2, 0)
        job.kill("worker:1")
        await job.until(lambda: job.life("begins", rehearses=True))
        job.controller.interrupt("SIGINT")
        await job.runner.ended.wait()
        assert not job.of("successor", state="ended")

    job = run_job(tmp_path, test)
    assert not [e for e in job.life("begins") if psutil.pid_exists(e["pid"])]


def test_without_its_launcher_the_state_is_kept_and_nothing_is_left(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        (job.folder / "slow").write_text("30")
        await job.runs(2, 0)
        stays = job.pid("worker:0")
        job.kill("worker:1")
        await job.until(lambda: job.life("begins", rehearses=True))
        agent = job.agents["a"]
        assert agent.stdin is not None
        agent.stdin.close()  # as the launcher's death does
        await job.until(lambda: agent.poll() is not None)
        (left,) = job.life("leaves")
        assert left["pid"] == stays

    job = run_job(tmp_path, test)
    assert not [e for e in job.life("begins") if psutil.pid_exists(e["pid"])]


def test_a_preempted_job_is_saved_also_while_a_successor_rehearses(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        (job.folder / "slow").write_text("30")
        await job.runs(2, 0)
        job.kill("worker:1")
        await job.until(lambda: job.life("begins", rehearses=True))
        job.controller.interrupt("SIGTERM")
        await job.runner.ended.wait()
        assert job.runner.round.preempted and job.runner.round.saved_step

    run_job(tmp_path, test)
