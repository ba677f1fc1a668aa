"""One job whose workers die again and again: it goes on, restarts nobody, and grows nowhere.

Real agents and workers, which have no TensorFlow. TFRUN_TEST_TURNS says how often one does.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
from toy_job import QUICK, ToyJob, run_job

SEED = 5
SETTLED = 8  # turns after which nothing is new any more


class Turns:
    """What happens to a job of four workers on two machines."""

    def __init__(self, job: ToyJob, chance: random.Random) -> None:
        self.job, self.chance = job, chance

    @property
    def workers(self) -> list[str]:
        return [f"worker:{rank}" for rank in range(4)]

    async def one_dies(self) -> None:
        self.job.kill(self.chance.choice(self.workers))

    async def two_die(self) -> None:
        self.job.kill(*self.chance.sample(self.workers, 2))

    async def all_but_one_die(self) -> None:
        self.job.kill(*self.chance.sample(self.workers, 3))

    async def one_dies_and_soon_another(self) -> None:
        first, second = self.chance.sample(self.workers, 2)
        pid = self.job.pid(second)
        self.job.kill(first)
        await asyncio.sleep(self.chance.uniform(0, 0.15))  # while the next round forms
        os.kill(pid, signal.SIGKILL)

    async def one_dies_while_a_successor_joins(self) -> None:
        self.job.kill("worker:3")
        await self.successor("ready")
        stays = self.job.of("worker_started", task="worker:0")[-1]["pid"]
        await asyncio.sleep(self.chance.uniform(0, 0.1))
        os.kill(stays, signal.SIGKILL)

    async def a_successor_dies_while_it_starts(self) -> None:
        self.job.kill("worker:2")
        await self.end_successor("started", signal.SIGKILL)

    async def a_successor_dies_while_it_is_taken_in(self) -> None:
        self.job.kill("worker:2")
        await self.end_successor("ready", signal.SIGKILL)

    async def a_successor_is_stopped(self) -> None:
        self.job.kill("worker:1")
        await self.end_successor("ready", signal.SIGSTOP)

    async def one_is_stopped(self) -> None:
        os.kill(self.job.pid(self.chance.choice(self.workers)), signal.SIGSTOP)

    async def a_machine_dies(self) -> None:
        name = self.chance.choice("ab")
        number = self.job.runner.round.number
        self.job.agents[name].kill()
        await self.job.until(lambda: self.job.runner.round.number > number)
        self.job.start_agent(name)

    async def successor(self, state: str) -> list[int]:
        """The processes of a successor that comes to this state now."""
        before = len(self.job.of("successor", state=state))
        found = await self.job.until(lambda: self.job.of("successor", state=state)[before:])
        names = {event["successor"] for event in found}
        started = self.job.of("successor", state="started")
        return [event["pid"] for event in started if event["successor"] in names][:1]

    async def end_successor(self, state: str, signum: signal.Signals) -> None:
        (pid,) = await self.successor(state)
        if psutil.pid_exists(pid):
            os.kill(pid, signum)


USUAL: tuple[Callable[[Turns], Awaitable[None]], ...] = (
    *(Turns.one_dies, Turns.two_die, Turns.one_dies_and_soon_another),
    *(Turns.one_dies_while_a_successor_joins, Turns.all_but_one_die),
    *(Turns.a_successor_dies_while_it_starts, Turns.a_successor_dies_while_it_is_taken_in),
)
SLOW = (Turns.one_is_stopped, Turns.a_successor_is_stopped, Turns.a_machine_dies)


async def whole(job: ToyJob) -> None:
    """Waits until four workers train again, and nobody else is there."""

    def is_whole() -> bool:
        now = job.runner.round.number
        stepped = {one["pid"] for one in job.life("steps", round=now, size=4)}
        told = {one["pid"] for one in job.of("worker_started", round=now)}
        if len(stepped) != 4 or stepped != told or job.processes() != stepped:
            return False
        return all(psutil.Process(pid).status() in ("running", "sleeping") for pid in stepped)

    await job.until(is_whole)
    agents = Counter(task.agent for task in job.runner.plan.planned)
    assert all(agents[name] <= slots for name, slots in job.slots.items()), agents


def held(job: ToyJob) -> dict[str, Counter[str]]:
    """What each process that lives on holds: the launcher, the agents; and files in memory."""
    found = {"launcher": Counter({"tasks": len(asyncio.all_tasks())})}
    watched = {"launcher": psutil.Process()}
    watched |= {name: psutil.Process(agent.pid) for name, agent in job.agents.items()}
    for name, process in watched.items():
        counts = found.setdefault(name, Counter())
        counts |= Counter(
            {
                "descriptors": process.num_fds(),
                "threads": process.num_threads(),
                "MiB": process.memory_info().rss >> 20,
            }
        )
        found[name] = counts
    return found


async def happen(job: ToyJob, turns: int, kinds: tuple) -> None:
    chance = random.Random(SEED)
    turn = Turns(job, chance)
    await job.runs(4, 0)
    before: dict[str, Counter[str]] = {}
    for number in range(turns):
        kind = kinds[number % len(kinds)] if number < len(kinds) else chance.choice(kinds)
        begun = job.runner.round.number
        await kind(turn)
        await job.until(lambda: job.runner.round.number > begun)  # noqa: B023
        await whole(job)
        if number == SETTLED:
            before = held(job)
    after = held(job)
    print(before, after, job.runner.round.number)
    await job.finish()
    for name, counts in before.items():
        grown = after[name] - counts
        assert grown["descriptors"] <= 1 and grown["threads"] <= 0 and grown["tasks"] <= 1, grown
        # What the launcher here remembers of its events is the test's.
        assert grown["MiB"] <= 2 + turns / (10 if name == "launcher" else 40), grown


def check(job: ToyJob) -> None:
    assert not job.of("successors_given_up") and job.runner.round.state.value == "ended"
    # No process was begun but the first ones and successors: nobody was started again.
    begun = job.life("begins")
    assert [one["rehearses"] for one in begun] == [False] * 4 + [True] * (len(begun) - 4)
    for number in {one["round"] for one in job.life("steps")}:
        ranks = [one["rank"] for one in job.life("steps", round=number)]
        assert len(ranks) == len(set(ranks))
    assert not [one for one in begun if psutil.pid_exists(one["pid"])]


@pytest.mark.thorough
def test_deaths_of_all_kinds(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        await happen(job, int(os.environ.get("TFRUN_TEST_TURNS", "8")), USUAL)

    slots = {"a": 2, "b": 2}
    check(run_job(tmp_path, test, workers="4", slots=slots, max_restarts=5))


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_hundreds_of_deaths_of_all_kinds(tmp_path: Path) -> None:
    async def test(job: ToyJob) -> None:
        await happen(job, int(os.environ.get("TFRUN_TEST_TURNS", "60")), (*USUAL, *SLOW))

    slots = {"a": 3, "b": 3}
    check(run_job(tmp_path, test, workers="4", slots=slots, max_restarts=5, timeouts=QUICK))
