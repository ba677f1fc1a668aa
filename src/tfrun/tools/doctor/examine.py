"""Asks all machines, then all pairs that matter, then all together."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfrun.tools.child_job import Say
from tfrun.tools.doctor import findings
from tfrun.tools.doctor.findings import ERROR, WARNING, Finding
from tfrun.tools.doctor.probed_machine import ProbedMachine, Silent

CONNECT_SECONDS = 3.0
ALL_PAIRS = 16  # machines; of more, neighbours in the ring and the first with each
SMALL, LARGE = 2, 1 << 20  # float32 numbers of the sums that are timed
TIMES = 5
# With less a sum looks slow, and pairs are timed: what one Gbit/s gives, and a data centre.
SLOW_BYTES, SLOW_SECONDS = 100e6, 5e-3

Pair = tuple[str, str]


@dataclass(kw_only=True)
class Examination:
    """What was found.

    Attributes:
      machines: the facts of each machine that answers.
      findings: what is wrong.
      sum: "seconds" for a few bytes, "bytes_per_second", "machines" of the sum; empty without one.
      pairs: the bytes per second of each pair that was timed.
    """

    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    sum: dict[str, Any] = field(default_factory=dict)
    pairs: dict[Pair, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "fit": not findings.fails(self.findings),
            "findings": [finding._asdict() for finding in self.findings],
            "machines": self.machines,
            "sum": self.sum,
            "pairs": [
                {"machines": list(pair), "bytes_per_second": speed}
                for pair, speed in self.pairs.items()
            ],
        }


async def examine(
    machines: Sequence[ProbedMachine], say: Say, *, directory: str, run_dir: str
) -> Examination:
    """Examines machines, and leaves nothing on them.

    They are not started yet; a job there would have the working `directory` and write to `run_dir`.
    """
    found = Examination()
    try:
        say(f"asking {len(machines)} machine" + ("s" if len(machines) > 1 else ""))
        there = await _facts(machines, found, {"directory": directory, "run_dir": run_dir})
        for name, facts in found.machines.items():
            found.findings += findings.of_machine(name, facts)
        if len(there) > 1:
            await _together(there, found, say)
    finally:
        await asyncio.gather(*(machine.close() for machine in machines))
    return found


async def _facts(
    machines: Sequence[ProbedMachine], found: Examination, places: Mapping[str, str]
) -> list[ProbedMachine]:
    names = [machine.name for machine in machines] if len(machines) > 1 else []

    async def ask(machine: ProbedMachine) -> dict[str, Any] | Finding:
        try:
            await machine.start()
            return await machine.ask("facts", names=names, **places)
        except Silent as error:
            if mtu := await machine.narrow():
                return findings.narrow(f"this machine → {machine.name}, by SSH", mtu)
            return _cannot_be_asked(machine.name, str(error))

    there = []
    for machine, answer in zip(machines, await asyncio.gather(*map(ask, machines)), strict=True):
        if isinstance(answer, Finding):
            found.findings.append(answer)
        else:
            found.machines[machine.name] = answer
            there.append(machine)
    return there


def _cannot_be_asked(name: str, why: str) -> Finding:
    what = f"it cannot be asked: {why}"
    why = "tfrun starts workers in the same way"
    fix = "Have `ssh -o BatchMode=yes HOST true` work, with tfrun installed there"
    return Finding(ERROR, what, name, why, fix)


async def _together(machines: Sequence[ProbedMachine], found: Examination, say: Say) -> None:
    facts = found.machines
    found.findings += findings.of_versions(facts)
    found.findings += findings.of_gpus(facts)
    found.findings += findings.of_names(facts)
    found.findings += findings.of_network(facts)
    found.findings += findings.of_openness(facts)
    try:
        found.findings += findings.of_clocks(
            {machine.name: await _clock(machine) for machine in machines}
        )
        ports = {m.name: (await m.ask("listen"))["port"] for m in machines}
        if not all(facts[machine.name]["address"] for machine in machines):
            return
        pairs = pairs_that_matter([machine.name for machine in machines])
        say(f"connecting {len(pairs)} pairs of machines, on a free port each")
        verdicts = await _connect(machines, pairs, facts, ports)
        blocked = list(findings.of_connections(verdicts))
        found.findings += blocked
        if not blocked:
            await _speeds(machines, found, say)
    except Silent as error:
        what = f"a check between machines was broken off: {error}"
        where = ", ".join(machine.name for machine in machines)
        why = "a connection that breaks now breaks in training as well"
        fix = "Run it again; then look at the network between them"
        found.findings.append(Finding(ERROR, what, where, why, fix))


def pairs_that_matter(names: Sequence[str]) -> list[Pair]:
    """Returns (from, to): all of them, or neighbours and the first with each of many machines."""
    if len(names) <= ALL_PAIRS:
        return list(itertools.permutations(names, 2))
    ring = zip(names, (*names[1:], names[0]), strict=True)
    both = [*ring, *((names[0], name) for name in names[2:-1])]
    return [pair for a, b in both for pair in ((a, b), (b, a))]


async def _clock(machine: ProbedMachine) -> tuple[float, float]:
    """Returns how many seconds its clock is ahead of ours, and how uncertain that is."""
    before = time.time()
    there = (await machine.ask("clock"))["time"]
    after = time.time()
    return there - (before + after) / 2, (after - before) / 2


async def _connect(
    machines: Sequence[ProbedMachine],
    pairs: Sequence[Pair],
    facts: Mapping[str, Mapping[str, Any]],
    ports: Mapping[str, int],
) -> dict[Pair, dict[str, Any]]:
    verdicts: dict[Pair, dict[str, Any]] = {}

    async def ask(machine: ProbedMachine) -> None:
        guess = 0  # of what is narrow to one, the rest is mostly, too
        for source, target in pairs:
            if source == machine.name:
                where = {"address": facts[target]["address"], "port": ports[target]}
                said = await machine.ask("connect", **where, seconds=CONNECT_SECONDS, guess=guess)
                verdicts[source, target] = said
                guess = said.get("mtu", guess)

    await asyncio.gather(*map(ask, machines))
    return {pair: verdicts[pair] for pair in pairs}


async def _speeds(machines: Sequence[ProbedMachine], found: Examination, say: Say) -> None:
    say(f"timing a sum over {len(machines)} machines")
    seconds = await _sum(machines, found.machines, SMALL)
    speed = _bytes_of(len(machines)) / await _sum(machines, found.machines, LARGE)
    found.sum = {"machines": len(machines), "seconds": seconds, "bytes_per_second": speed}
    if speed >= SLOW_BYTES and seconds <= SLOW_SECONDS:
        return
    pairs = [pair for pair in pairs_that_matter([m.name for m in machines]) if pair[0] < pair[1]]
    say(f"the sum looks slow: timing {len(pairs)} pairs")
    by_name = {machine.name: machine for machine in machines}
    for a, b in pairs:
        both = (by_name[a], by_name[b])
        taken = await _sum(both, found.machines, LARGE)
        found.pairs[a, b] = _bytes_of(2) / taken
    culprits = list(findings.of_speeds(found.pairs))
    found.findings += culprits
    if not culprits:
        what = f"sums are slow: {speed / 1e6:.0f} MB/s, {seconds * 1e3:.1f} ms at least"
        why = "each step waits for one sum of all gradients"
        fix = "Use a faster network between them, or larger batches"
        found.findings.append(Finding(WARNING, what, ", ".join(by_name), why, fix))


def _bytes_of(world: int) -> float:
    """What each machine sends for a sum of LARGE numbers."""
    return 4 * LARGE * 2 * (world - 1) / world


async def _sum(
    machines: Sequence[ProbedMachine], facts: Mapping[str, Mapping[str, Any]], count: int
) -> float:
    """Returns the seconds that the slowest machine needed for the fastest sum."""
    key, world = secrets.token_hex(16), len(machines)

    async def each(question: str, **values: Any) -> list[dict[str, Any]]:
        asked = (m.ask(question, rank=i, world=world, **values) for i, m in enumerate(machines))
        return await asyncio.gather(*asked)

    ports = [answer["port"] for answer in await each("meet", key=key)]
    hosts = [facts[machine.name]["address"] for machine in machines]
    peers = list(zip(hosts, ports, strict=True))
    answers = await each("sum", peers=peers, count=count, times=TIMES)
    if not all(answer["right"] for answer in answers):
        raise Silent("a sum over all machines is wrong: the network changes what it carries")
    return max(answer["seconds"] for answer in answers)
