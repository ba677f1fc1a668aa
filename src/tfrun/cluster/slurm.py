"""Reads from Slurm's environment where this process is in its allocation. Pure.

Hosts come in the order of `scontrol show hostnames`, which is that of Slurm's own task numbers.
TensorFlow's `SlurmClusterResolver` sorts them as strings, so that on n[1-11] ten of eleven ranks
get another host's address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfrun.job.errors import TfrunError

# Steps that Slurm makes itself: the batch script, the shell of salloc (slurm/slurm.h).
FIRST_RESERVED_STEP = 0xFFFFFFF0

_TASKS = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")

Hostnames = Callable[[str], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """The nodes of a Slurm job, as a batch script or a shell in it sees them.

    Attributes:
      job: the job's number.
      nodes: (name, tasks) of each node, in Slurm's order.
      tasks_stated: the user has asked for a number of tasks; else there is one a node.
      here: the node that this process is on; "" outside of the allocation, after salloc.
      restarts: how often the job was requeued.
    """

    job: str
    nodes: tuple[tuple[str, int], ...]
    tasks_stated: bool
    here: str
    restarts: int = 0

    is_member = False  # of a job that another process launches

    def slots(self, workers: int | None) -> tuple[tuple[str, int], ...]:
        """Returns (node, workers that it takes).

        Args:
          workers: the value of -n, None when it is not given; it is spread over the nodes evenly
            when Slurm was not told a number of tasks.
        """
        if self.tasks_stated or workers is None:
            return self.nodes
        each = -(-workers // len(self.nodes))
        return tuple((name, each) for name, _ in self.nodes)


@dataclass(frozen=True, kw_only=True)
class SlurmStep:
    """A job step of several tasks, `srun tfrun …`: this process is one of them.

    Attributes:
      job, step: their numbers.
      nodes: (name, tasks) of each node, in Slurm's order.
      rank: this task's number in the step.
      here: the node that it is on.
      local: its number on the node.
      restarts: how often the job was requeued.
    """

    job: str
    step: str
    nodes: tuple[tuple[str, int], ...]
    rank: int
    here: str
    local: int
    restarts: int = 0

    @property
    def is_member(self) -> bool:
        return self.rank > 0

    @property
    def tasks_here(self) -> int:
        return dict(self.nodes)[self.here]

    @property
    def agent(self) -> str:
        return agent_name(self.here, self.local, self.tasks_here)

    @property
    def agents(self) -> tuple[tuple[str, str], ...]:
        """(agent, node) of all tasks: node by node, in Slurm's order."""
        return tuple(
            (agent_name(node, local, tasks), node)
            for node, tasks in self.nodes
            for local in range(tasks)
        )


def agent_name(node: str, local: int, tasks: int) -> str:
    """Returns the name of a task's agent: its node's, with the task's number if it has several."""
    return node if tasks == 1 else f"{node}.{local}"


def slurm_place(
    environment: Mapping[str, str], hostnames: Hostnames
) -> Allocation | SlurmStep | None:
    """Returns where in Slurm this process is; None outside, and in a step of one task.

    A step of one task is `srun --pty bash` or `srun -n1 tfrun`: one process, as without Slurm.

    `hostnames` expands a node list, as `scontrol show hostnames` does.

    Raises:
      TfrunError: TFRUN-211 when the variables contradict each other.
    """
    job = environment.get("SLURM_JOB_ID")
    if not job:
        return None
    restarts = _number(environment, "SLURM_RESTART_COUNT", 0)
    step = environment.get("SLURM_STEP_ID", "")
    in_step = bool(step) and _number(environment, "SLURM_STEP_ID") < FIRST_RESERVED_STEP
    prefix = "SLURM_STEP_" if in_step else "SLURM_"
    node_list = environment.get(f"{prefix}NODELIST") or environment.get("SLURM_JOB_NODELIST")
    if not node_list:
        return None
    names = list(hostnames(node_list))
    # With whole nodes and no number of tasks, SLURM_TASKS_PER_NODE is the number of CPUs.
    stated = in_step or "SLURM_NTASKS" in environment or "SLURM_NTASKS_PER_NODE" in environment
    name = f"{prefix}TASKS_PER_NODE"
    text = environment.get(name) if stated else None
    counts = parse_tasks(text or f"1(x{len(names)})", where=name)
    if len(names) != len(counts):
        what = f"{node_list!r:.200} has {len(names)} nodes, but there are tasks for {len(counts)}"
        raise TfrunError("TFRUN-211", what, where=name)
    nodes = tuple(zip(names, counts, strict=True))
    here = environment.get("SLURMD_NODENAME", "")
    if in_step:
        if sum(counts) == 1:
            return None
        if here not in names:
            what = f"this node, {here!r:.80}, is not in {node_list!r:.200}"
            raise TfrunError("TFRUN-211", what, where="SLURMD_NODENAME")
        return SlurmStep(
            job=job,
            step=step,
            nodes=nodes,
            rank=_number(environment, "SLURM_PROCID"),
            here=here,
            local=_number(environment, "SLURM_LOCALID"),
            restarts=restarts,
        )
    return Allocation(
        job=job,
        nodes=nodes,
        tasks_stated=stated,
        here=here if here in names else "",
        restarts=restarts,
    )


def parse_tasks(text: str, *, where: str) -> list[int]:
    """Reads "2(x3),1" as [2, 2, 2, 1].

    Raises:
      TfrunError: TFRUN-211.
    """
    counts: list[int] = []
    for part in text.split(","):
        match = _TASKS.fullmatch(part)
        if match is None or (repeat := int(match.group(2) or 1)) > 1_000_000:
            what = f"{part!r:.60} is not a number of tasks"
            raise TfrunError("TFRUN-211", what, where=where, expected='numbers like "2(x3),1"')
        counts += [int(match.group(1))] * repeat
    return counts


def own_gpus(environment: Mapping[str, str]) -> str | None:
    """Returns the part of a node's GPUs that is this task's; None to leave it as Slurm has it.

    Slurm binds GPUs to tasks when it is asked to (--gpus-per-task, --gpu-bind). Otherwise every
    task of a node sees all of them, and the workers would all take the same ones.
    """
    gpus = [gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    names = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_TRES_PER_TASK", "SLURM_TRES_BIND")
    counts = parse_tasks(environment.get("SLURM_STEP_TASKS_PER_NODE", "1"), where="")
    number = _number(environment, "SLURM_NODEID", 0)
    tasks = counts[number] if number < len(counts) else 1
    if any(environment.get(name) for name in names) or tasks < 2 or len(gpus) < tasks:
        return None
    each, local = len(gpus) // tasks, _number(environment, "SLURM_LOCALID", 0)
    return ",".join(gpus[local * each : (local + 1) * each])


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"[0-9]{1,10}", text):
        shown = "it is not set" if text is None else f"{text!r:.60} is not a number"
        raise TfrunError("TFRUN-211", shown, where=name)
    return int(text)
