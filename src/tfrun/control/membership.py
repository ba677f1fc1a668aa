"""Decides which machines the next round has: wait for one, go on without it, or grow. Pure.

A job with `-n MIN:MAX` that has lost a machine goes on with fewer workers after
`--rejoin-timeout`; one that needs the machine waits for it. A machine that returns, or comes late,
stands by, and is taken in together with others between two steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfrun.control.placement import Plan, Site, make_plan
from tfrun.control.rounds.model import Round, State
from tfrun.job.first_failure import Failure
from tfrun.job.spec import JobSpec

MOST_DOUBLINGS = 8
IMPORT_SECONDS = 10.0
MAX_NAMED = 10  # machines in one message


@dataclass(frozen=True, kw_only=True)
class Wait:
    """These agents are missing.

    `is_enough`: what is there is enough, once it has been waited for the others long enough.
    """

    missing: tuple[str, ...]
    is_enough: bool


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """Too few are there, and nobody else can be expected."""


Verdict = Plan | Wait | GiveUp


def decide(
    spec: JobSpec,
    wanted: Plan,
    there: Collection[str],
    expected: Collection[str],
    *,
    waited: float,
    quiet: float,
    patience: float,
) -> Verdict:
    """Returns the plan with which a round can start; else who is waited for, if anybody is.

    Args:
      spec: the job.
      wanted: the plan of the round before, or the first one.
      there: the agents that are connected.
      expected: the agents that may come, or return.
      waited: for how many seconds it has been waited.
      quiet: for how many seconds nobody has come: who comes now, others may follow.
      patience: how long to wait, in seconds, before the job goes on with fewer workers.
    """
    now, later = (
        possible_workers(spec, wanted, agents) for agents in (set(there), {*there, *expected})
    )
    if not later:
        return GiveUp()
    is_best = now >= wanted.workers or now == later
    if is_best or (now and waited >= patience and quiet >= spec.timeouts.settle):
        plan = next_plan(spec, wanted, there)
        assert plan is not None
        return plan
    # After a round in place a machine that was lost is in no plan any more.
    missing = wanted.agents - set(there) or set(expected) - set(there)
    return Wait(missing=tuple(sorted(missing)), is_enough=now > 0)


def next_plan(spec: JobSpec, plan: Plan, there: Collection[str]) -> Plan | None:
    """Returns the plan of the next round, as large as it can be; None when too few slots are left.

    The machines that go on keep their order: the chief stays on its machine while that is there.
    Those that have had no task come after them.

    Args:
      spec: the job.
      plan: the plan of the round before.
      there: the agents that can have tasks.
    """
    workers = possible_workers(spec, plan, there)
    if not workers:
        return None
    if plan.workers >= workers and plan.agents <= set(there):
        return plan
    sites = sorted(plan.sites, key=lambda site: site.agent not in plan.agents)
    return make_plan(spec, sites, workers=workers, there=there)


def possible_workers(spec: JobSpec, plan: Plan, there: Collection[str]) -> int:
    """Returns how many workers the job can have on these agents; 0 when they are too few."""
    if plan.fixed and not plan.agents <= set(there):  # no task can move
        return 0
    workers = min(plan.slots_of(there), spec.workers.high)
    return workers if workers >= spec.workers.low else 0


@dataclass(frozen=True, kw_only=True)
class StandingBy:
    """A machine that is connected and has no task.

    Attributes:
      here: for how many seconds.
      ready: for how many seconds it could have started workers; None while it cannot.
      losses: how often it was lost before.
    """

    here: float
    ready: float | None = None
    losses: int = 0


def growth(
    spec: JobSpec, plan: Plan, others: Mapping[str, StandingBy], *, stepped: float
) -> Plan | None:
    """Returns the larger plan that the running round is to be interrupted for; None for not now.

    A round is left in peace for its first seconds. Machines that come within a moment are taken
    in at once, and one that comes and goes has to stay the longer the more often it went.

    Args:
      spec: the job.
      plan: the running round's.
      others: the connected agents that have no task.
      stepped: the seconds since the round's first step.
    """
    settle = spec.timeouts.settle
    if not others or spec.ps or stepped < spec.timeouts.grow_after:
        return None
    for other in others.values():
        is_coming = other.ready is None and other.here < IMPORT_SECONDS
        if is_coming or (other.ready is not None and other.ready < settle):
            return None
    larger = next_plan(spec, plan, plan.agents | steady(spec, others))
    return larger if larger is not None and larger.workers > plan.workers else None


def steady(spec: JobSpec, others: Mapping[str, StandingBy]) -> set[str]:
    """Returns which of the agents without a task have been there for long enough to have one.

    Args:
      spec: the job.
      others: the connected agents that have no task.
    """
    settle = spec.timeouts.settle
    return {
        name
        for name, other in others.items()
        if other.ready is not None
        and other.ready >= settle * 2 ** min(other.losses, MOST_DOUBLINGS)
    }


def with_site(spec: JobSpec, plan: Plan, site: Site, places: Collection[str]) -> Plan:
    """Returns the plan of a round that has not begun, with a machine that has just named itself.

    Args:
      spec: the job.
      plan: the plan so far.
      site: the machine, instead of as many places as it takes workers.
      places: agents that stand for machines that nobody has named yet.
    """
    named = [other for other in plan.sites if other.agent not in places] + [site]
    left = max(0, spec.workers.high - sum(other.slots for other in named))
    empty = [other for other in plan.sites if other.agent in places]
    return make_plan(spec, named + empty[:left])


def listed(names: Sequence[str], joint: str = " and ") -> str:
    """Returns names as a person reads them; of many only the first."""
    more = len(names) - MAX_NAMED
    return joint.join([*names[:MAX_NAMED], *([f"{more} more"] if more > 0 else [])])


def change(before: Plan, after: Plan) -> dict[str, Any]:
    """Returns how a plan differs from the one before it, for the event log."""
    old, new = before.agents, after.agents
    return {
        "workers": len(after.tasks),
        "before": len(before.tasks),
        "without": sorted(old - new),
        "joined": sorted(new - old),
    }


def not_formed(round: Round, why: Mapping[str, str], now: float) -> Failure:
    """Returns the failure of a round that could not start in time.

    Args:
      round: the round, in JOINING or PREPARING.
      why: what keeps an agent from joining, as far as that is known.
      now: seconds since the epoch.
    """
    joining, seconds = round.state is State.JOINING, round.timeouts.join_timeout
    missing = sorted(round.agents - set(round.joined if joining else round.ports))
    shown = [f"{name} ({why[name]})" if joining and why.get(name) else name for name in missing]
    if joining and round.number:
        text = f"{listed(shown, ', ')} did not return in {seconds:.0f} s"
    else:
        names = listed(shown, ", ")
        text = f"the cluster did not form in {seconds:.0f} s: waiting for {names}"
    return Failure(task=listed(missing, ", "), time=now, code="TFRUN-303", tail=text)


def new_round(
    spec: JobSpec, plan: Plan, number: int, *, resumes: bool = False, preempting: bool = False
) -> Round:
    """Returns a round that nobody has joined yet."""
    return Round(
        number=number,
        tasks=plan.planned,
        timeouts=spec.timeouts,
        recovers=recovers(spec, plan),
        keeps=recovers(spec, plan),
        resumes=resumes,
        preempting=preempting,
        replacements=spec.max_restarts,
    )


def recovers(spec: JobSpec, plan: Plan) -> bool:
    """True when failures of the infrastructure lead to a next round.

    The other tasks of a foreign TF_CONFIG are not ours to start again.
    """
    return spec.max_restarts > 0 and not plan.external
