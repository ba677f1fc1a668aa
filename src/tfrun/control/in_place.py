"""Decides who is in a round of processes that wait: those that stayed, and successors. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfrun.cluster.tasks import tasks_on, with_evaluator
from tfrun.control.placement import Plan
from tfrun.control.rounds.model import Round
from tfrun.job.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A process that waits for a place.

    Attributes:
      name: of a task of the round before, or of a successor.
      agent: where it is.
      port: that is reserved for it there.
      stayed: it has the training's state; a successor has none.
    """

    name: str
    agent: str
    port: int
    stayed: bool = False


@dataclass(frozen=True, kw_only=True)
class InPlace:
    """A round in place.

    Attributes:
      plan: who runs what.
      ports: each agent's, as the tasks of the plan take them.
      takes: for each task the process that becomes it.
    """

    plan: Plan
    ports: Mapping[str, tuple[int, ...]]
    takes: Mapping[str, str]

    def successors(self, known: Collection[str]) -> list[str]:
        """Returns which of the successors that are known have got a place."""
        return [name for name in self.takes.values() if name in known]


def stayers(round: Round) -> list[Waiting]:
    """Returns the tasks of a round that wait for the next one, in rank order."""
    return [
        Waiting(name=task.name, agent=task.agent, port=round.stayed[task.name], stayed=True)
        for task in round.tasks
        if task.name in round.waiting
    ]


def allows(spec: JobSpec, plan: Plan) -> bool:
    """True for a job whose workers can be given another place.

    What is on servers, and addresses that somebody else has stated, cannot move.
    """
    return not spec.ps and not plan.external and not plan.fixed


def with_places(
    spec: JobSpec,
    plan: Plan,
    stay: Sequence[str],
    ready: Sequence[Waiting],
    *,
    leaving: Collection[str],
    there: Collection[str],
) -> list[Waiting]:
    """Returns which of the successors that are ready get a place.

    Those for whom there is room on their machines; others only where the job needs them, and
    nobody can come to a machine that has room. Else what is a spare here would take the place of
    one that is about to come there, for good.

    Args:
      spec: the job.
      plan: a plan that knows the machines.
      stay: the agent of each worker that is there already.
      ready: the successors that are ready, those first that have come first.
      leaving: the agents whose machines are being preempted.
      there: the agents that are connected.
    """
    able = set(there) - set(leaving)
    room = Counter({site.agent: site.slots for site in plan.sites if site.agent in able})
    room.subtract(agent for agent in stay if agent in room)
    ready, new = [one for one in ready if one.agent in able], list[Waiting]()
    for one in ready:
        if room[one.agent] > 0 and len(stay) + len(new) < spec.workers.high:
            new.append(one)
            room[one.agent] -= 1
    elsewhere = sum(max(0, left) for left in room.values())
    for one in ready:
        if one not in new and len(stay) + len(new) + elsewhere < spec.workers.low:
            new.append(one)
    return new


def next_round(
    spec: JobSpec,
    plan: Plan,
    stay: Sequence[Waiting],
    ready: Sequence[Waiting],
    *,
    leaving: Collection[str],
    there: Collection[str],
    more: bool,
) -> InPlace | None:
    """Returns the round in place that follows; None when it has to be one of fresh processes.

    Args:
      spec: the job.
      plan: the plan of the round before.
      stay: those that stayed, in rank order.
      ready: the successors that are ready, those first that have come first.
      leaving: the agents whose machines are being preempted.
      there: the agents that are connected.
      more: others may be on their way, if these are too few.
    """
    # Who leaves passes on what it has only if nobody else has it.
    stay = [one for one in stay if one.agent not in leaving] or list(stay)
    if not stay or not allows(spec, plan):
        return None
    agents = [one.agent for one in stay]
    new = with_places(spec, plan, agents, ready, leaving=leaving, there=there)
    if len(stay) + len(new) < spec.workers.low and not more:
        return None
    return _of(spec, plan, _in_order(stay, new))


def _in_order(stay: Sequence[Waiting], new: Iterable[Waiting]) -> list[Waiting]:
    """Returns those that stay in the order that they had, each new one behind its machine's.

    So the workers of a machine are neighbours.
    """
    by_agent: dict[str, list[Waiting]] = {}
    for one in (*stay, *new):
        by_agent.setdefault(one.agent, []).append(one)
    return [one for group in by_agent.values() for one in group]


def _of(spec: JobSpec, plan: Plan, order: Sequence[Waiting]) -> InPlace:
    index = {site.agent: number for number, site in enumerate(plan.sites)}
    tasks = tasks_on([(index[one.agent], plan.sites[index[one.agent]].host) for one in order])
    ports: dict[str, tuple[int, ...]] = {}
    for one in order:
        ports[one.agent] = (*ports.get(one.agent, ()), one.port)
    takes = {f"worker:{rank}": one.name for rank, one in enumerate(order)}
    if spec.evaluator:  # a new process: it stands outside, and keeps nothing
        tasks = with_evaluator(tasks)
    named = {f"{task.role}:{task.index}": task for task in tasks}
    return InPlace(plan=replace(plan, tasks=named), ports=ports, takes=takes)
