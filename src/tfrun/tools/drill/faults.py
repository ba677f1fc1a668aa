"""The faults that a drill knows: what happens, to whom, and how many workers it takes. Pure."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from tfrun.job.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault.

    Attributes:
      what: one clause for people.
      signal: what the victims get.
      least: with fewer workers it cannot be had.
      repeats: it comes several times in one run.
      on_hosts: it can be had where the workers are on other machines.
    """

    what: str
    signal: signal.Signals = signal.SIGKILL
    least: int = 1
    repeats: bool = False
    on_hosts: bool = False


FAULTS = {
    "kill": Fault(what="a worker that is not the chief is killed", least=2),
    "chief": Fault(what="the chief is killed"),
    "two": Fault(what="two workers are killed at once", least=2),
    # Nobody waits for a worker that is alone, so nobody would notice.
    "stop": Fault(what="a worker is stopped (SIGSTOP)", signal=signal.SIGSTOP, least=2),
    "all": Fault(what="all workers are killed at once"),
    "random": Fault(what="workers are killed again and again", repeats=True),
    "preempt": Fault(
        what="the job is told to end (SIGTERM), and started again",
        signal=signal.SIGTERM,
        on_hosts=True,
    ),
    "disk": Fault(what="the disk of the checkpoints fills up", on_hosts=True),
    "cut": Fault(what="the connection to a host is cut", on_hosts=True),
}
DEFAULT = ("kill", "chief", "two", "stop", "preempt")
DEFAULT_ON_HOSTS = ("cut", "preempt")


def parse_faults(text: str | None, workers: int, hosts: int = 0) -> tuple[str, ...]:
    """Reads "kill,chief"; without a text, the default ones that so many workers can have.

    `hosts` is on how many other machines; 0 when all workers are on this one.

    Raises:
      UsageError: TFRUN-105 for a name that is none, TFRUN-107 for too few workers, or one that
        needs processes of this machine.
    """
    if text is None and hosts:
        return DEFAULT_ON_HOSTS
    if text is None:
        return tuple(name for name in DEFAULT if FAULTS[name].least <= workers)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in FAULTS:
            raise UsageError(
                "TFRUN-105",
                f"{name!r:.60} is not a fault",
                where="--faults",
                expected=f"some of {', '.join(FAULTS)}, with commas between them",
            )
        if hosts and not FAULTS[name].on_hosts:
            able = ", ".join(name for name, fault in FAULTS.items() if fault.on_hosts)
            raise UsageError(
                "TFRUN-107",
                f"the fault {name!r} signals processes of this machine, and -H names others",
                fix=f"Leave out -H, or choose from {able}",
            )
        if FAULTS[name].least > workers:
            raise UsageError(
                "TFRUN-107",
                f"the fault {name!r} needs {FAULTS[name].least} workers, and -n says {workers}",
                fix=f"Give -n {FAULTS[name].least} or more, or leave it out of --faults",
            )
    return names


def choose(name: str, tasks: Sequence[str], chance: random.Random) -> tuple[str, ...]:
    """Returns whom the fault hits.

    `tasks` are the workers that run, for example "worker:0"; rank 0 is the chief.
    """
    ranked = sorted(tasks, key=lambda task: int(task.rpartition(":")[2]))
    match name:
        case "chief":
            return tuple(ranked[:1])
        case "kill":
            return (chance.choice(ranked[1:] or ranked),)
        case "two":
            return tuple(chance.sample(ranked, min(2, len(ranked))))
        case "all":
            return tuple(ranked)
    return (chance.choice(ranked),)
