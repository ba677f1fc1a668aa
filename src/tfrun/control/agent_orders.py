"""Tells the agents what to do for a round: get ready, start tasks, save what their memory holds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tfrun.cluster.address import Address
from tfrun.cluster.cluster_file import lacks_chief, with_chief
from tfrun.cluster.cluster_spec import ClusterSpec, TaskKey
from tfrun.cluster.external_cluster import external_environment
from tfrun.cluster.start_order import awaited
from tfrun.cluster.tasks import Task, cluster_of, environment_for, tasks_on
from tfrun.cluster.tf_config import parse_tf_config
from tfrun.control.machines import Members
from tfrun.control.placement import Plan, Whereabouts
from tfrun.control.protocol import messages
from tfrun.control.recovery import Recovery
from tfrun.control.rounds.model import PlannedTask, Round
from tfrun.control.successors import Successor
from tfrun.job.errors import TfrunError
from tfrun.job.replicas import by_default
from tfrun.job.settings import OwnSettings
from tfrun.job.spec import JobSpec

NO_PORT = 9  # the port on which nobody listens, of a task whose process has none yet


@dataclass(kw_only=True, eq=False)
class AgentOrders:
    """Sends orders that are not the same for all agents."""

    spec: JobSpec
    members: Members
    known: Whereabouts
    window: tuple[int, int] | None
    saver: str = ""  # whose memory is being saved
    one_replica_each: bool = False  # the script cannot have several on a worker

    def prepare(self, plan: Plan, number: int) -> None:
        """Asks each agent for as many ports as its tasks need."""
        for agent in plan.agents:
            ports, stated = plan.ports_of(agent), plan.stated_ports_of(agent)
            self.members.send(agent, messages.Prepare(round=number, ports=ports, stated=stated))

    def go_on_in_place(self, plan: Plan, round: Round, takes: Mapping[str, str]) -> None:
        """Has the round begin with processes that wait; all agents have to know.

        Args:
          plan: the round's plan.
          round: the round, with its ports.
          takes: for each task the process that becomes it.
        """
        number, known, window = round.number, self.known.addresses, self.window
        by_agent = start_tasks(plan, self.spec, number, round.ports, window, known)
        for agent in self.members.names:
            tasks = [
                replace(task, takes=takes.get(task.task, "")) for task in by_agent.get(agent, ())
            ]
            self.members.send(agent, messages.StartRound.of(number, tasks, in_place=True))

    def start_successor(
        self,
        plan: Plan,
        round: Round,
        successor: Successor,
        *,
        traces: Sequence[str],
        overlaps: bool,
    ) -> None:
        """Has a successor started, with the environment of the task that it is to become.

        Args:
          plan: the running round's plan.
          round: that round.
          successor: the successor.
          traces: what it can trace at once.
          overlaps: the sums of those whom it joins begin early.
        """
        known = self.known.addresses
        replicas = 0 if self.one_replica_each else by_default(self.spec)
        task = successor_task(
            *(plan, round, successor, replicas, known), traces=traces, overlaps=overlaps
        )
        self.members.send(
            successor.agent, messages.StartSuccessor(successor=successor.name, task=vars(task))
        )

    def start(self, plan: Plan, round: Round, *, muted: bool = False, only: str = "") -> None:
        """Has the round's tasks started, or `only` one of them, at the address that it had.

        Args:
          plan: the round's plan.
          round: the round, with its ports.
          muted: see `start_tasks`.
          only: the task's name.
        """
        number, known, window = round.number, self.known.addresses, self.window
        by_agent = start_tasks(
            *(plan, self.spec, number, round.ports, window, known),
            muted=muted,
            one_replica_each=self.one_replica_each,
        )
        for agent, tasks in by_agent.items():
            if asked := [task for task in tasks if only in ("", task.task)]:
                self.members.send(agent, messages.StartRound.of(number, asked))

    def save_memory(self, plan: Plan, order: messages.SaveMemory, recovery: Recovery) -> bool:
        """Asks one machine of those with the newest state; another one only if that is lost.

        Returns False when no machine has any.
        """
        if self.saver not in self.members.names:
            rather = plan.planned[0].agent  # the chief's
            self.saver = recovery.holder(self.members.names, rather=rather) or ""
            self.members.send(self.saver, order)
        return bool(self.saver)


def start_tasks(
    plan: Plan,
    spec: JobSpec,
    number: int,
    ports: Mapping[str, Sequence[int]],
    window: tuple[int, int] | None,
    addresses: Mapping[str, str] | None = None,
    *,
    muted: bool = False,
    one_replica_each: bool = False,
) -> dict[str, list[messages.StartTask]]:
    """Returns the tasks of each agent's `StartRound`.

    Args:
      plan: the round's plan.
      spec: the job.
      number: the round's.
      ports: each agent's reserved ports.
      window: rows and columns of the terminal that the chief's output goes to.
      addresses: `Whereabouts.addresses`.
      muted: nobody sees the output of workers before they have restored their state.
      one_replica_each: see `AgentOrders`.

    Raises:
      TfrunError: TFRUN-302 when an agent has not reserved what it was asked to.
    """
    for agent, numbers in ports.items():
        if len(numbers) != plan.ports_of(agent) or not all(0 < n <= 65535 for n in numbers):
            reason = f"{agent} reserved {list(numbers)!r:.100}, not {plan.ports_of(agent)} ports"
            raise TfrunError("TFRUN-302", reason)
    free = {agent: iter(numbers) for agent, numbers in ports.items()}
    tasks = tuple(task for task in plan.tasks.values() if task.role != "evaluator")
    cluster = plan.fixed or ClusterSpec()
    if plan.fixed and lacks_chief(cluster):
        cluster = with_chief(cluster, next(free[plan.planned[0].agent]))
    if not plan.external and not plan.fixed:
        cluster = _cluster(plan, tasks, ports, addresses or {})
    world_size = sum(task.rank is not None for task in tasks)
    result: dict[str, list[messages.StartTask]] = {site.agent: [] for site in plan.sites}
    told = parse_tf_config(plan.external) if plan.external else None
    replicas = 0 if one_replica_each or plan.external else by_default(spec)
    for planned in plan.planned:
        task = plan.tasks[planned.name]
        key = told.task if told and told.task else TaskKey(type=task.role, index=task.index)
        peers = awaited(told.cluster if told else cluster, key, alone=told is not None)
        is_chief = planned.name == plan.chief
        if plan.external:
            environment = external_environment(plan.external, number)
        else:
            environment = environment_for(task, cluster, number, world_size)
        result[planned.agent].append(
            messages.StartTask(
                task=planned.name,
                runs=planned.runs,
                show=is_chief or spec.log_all,
                muted=muted,
                terminal=list(window) if window and is_chief else None,
                called=f"{key.type} {key.index}",
                awaits=peers,
                environment=environment,
                settings=_own_settings(planned, key, plan, spec, replicas),
            )
        )
    return result


def _cluster(
    plan: Plan,
    tasks: Sequence[Task],
    ports: Mapping[str, Sequence[int]],
    addresses: Mapping[str, str],
) -> ClusterSpec:
    """Returns the cluster of these tasks, each at the next port of its agent's."""
    free = {agent: iter(numbers) for agent, numbers in ports.items()}
    sites = [plan.sites[task.host_index] for task in tasks]
    hosts = [addresses.get(site.agent, site.host) for site in sites]
    nowhere = itertools.count(NO_PORT)  # each has a place of its own in a cluster
    numbers = [next(free.get(site.agent, iter(())), None) or next(nowhere) for site in sites]
    return cluster_of(tasks, [Address(host=h, port=p) for h, p in zip(hosts, numbers, strict=True)])


def successor_task(
    plan: Plan,
    round: Round,
    successor: Successor,
    replicas: int = 0,
    addresses: Mapping[str, str] | None = None,
    *,
    traces: Sequence[str] = (),
    overlaps: bool = False,
) -> messages.StartTask:
    """Returns the task that a successor is to become, in a world as large as the next one.

    It connects with nobody until it has its place, so that nobody needs its port.

    Args:
      plan: the running round's plan.
      round: that round.
      successor: the successor.
      replicas: of the job, where nobody states how many.
      addresses: `Whereabouts.addresses`.
      traces: what it can trace at once.
      overlaps: the sums of those whom it joins begin early.
    """
    index = {site.agent: number for number, site in enumerate(plan.sites)}
    agents = [task.agent for task in plan.planned if not task.is_aside]
    number = int(successor.task.partition(":")[2])
    agents += [successor.agent] * (number + 1 - len(agents))
    tasks = tasks_on([(index[agent], plan.sites[index[agent]].host) for agent in agents])
    cluster = _cluster(plan, tasks, round.ports, addresses or {})
    return messages.StartTask(
        task=successor.task,
        runs="script",
        show=False,
        muted=True,
        terminal=None,
        called=successor.task.replace(":", " "),
        awaits=[],
        environment=environment_for(tasks[number], cluster, round.number, len(tasks)),
        settings={
            **_of_all(replicas),
            "rehearses": True,
            "rehearses_call": successor.call,
            "rehearses_traces": list(traces),
            "rehearses_overlap": overlaps,
        },
    )


def _own_settings(
    planned: PlannedTask, key: TaskKey, plan: Plan, spec: JobSpec, replicas: int
) -> OwnSettings:
    """Returns in which settings a worker differs from the others of its machine."""
    own = _of_all(replicas)
    if key.type == "evaluator":  # keeps nothing for a successor, and shows no progress
        own |= {"state_dir": "", "ledger": 0}
    if plan.external:  # each task is a job, with a secret that the others do not know
        own["collective_key"] = ""
        if planned.runs == "server":  # nobody here hears of the chief's end
            own["await_chief"] = spec.timeouts.join_timeout
    return own


def _of_all(replicas: int) -> OwnSettings:
    """What all workers of a job are told of its replicas; nothing where each has one."""
    return {"default_replicas": replicas} if replicas else {}
