"""This process's place in its job, read from the environment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfrun.job.settings import ROUND, settings

_place: Mapping[str, str] | None = None  # of a process that has moved to another round
_asked_by = ""  # how the script has asked for this worker's place, where it does not stay for that
_has_asked = False  # and whether it has at all
_one_for_good = ""  # why this worker computes one replica, and starts again when another one dies


@dataclass(frozen=True, kw_only=True)
class World:
    """This process's place in the job.

    Attributes:
      rank: this task's number among the training tasks (chief and workers), from 0.
      size: the number of training tasks in this round.
      replicas: the pieces into which each global batch is divided; a task computes one or several
        of them. As many as tasks, unless the job has another number.
      local_rank: the rank among the tasks on this machine.
      local_size: the number of tasks on this machine.
      role: "chief", "worker", "ps" or "evaluator".
      is_chief: True on the one task that writes files: the chief, else worker 0.
      round: the number of the round (rendezvous), from 0.
      in_job: True when the process was started by tfrun or has a TF_CONFIG.

    Example:
        ```python
        world = tfrun.world()
        print(f"worker {world.rank} of {world.size}")
        ```
    """

    rank: int = 0
    size: int = 1
    replicas: int = 1
    local_rank: int = 0
    local_size: int = 1
    role: str = "worker"
    is_chief: bool = True
    round: int = 0
    in_job: bool = False


def world() -> World:
    """Returns this process's place in the job; alone in the world outside a job.

    A process that gets ready to take a worker's place is alone, too, and no chief.

    Returns:
      A `World`. It may change when the job goes on with other workers: ask again where you need
      it.

    Example:
        ```python
        if tfrun.world().is_chief:
            model.save("model.keras")
        ```
    """
    if sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] != "tfrun":
        note_asked("tfrun.world()")
    here = place()
    if not settings().rehearses:
        return here
    return replace(here, rank=0, size=1, local_rank=0, local_size=1, is_chief=False)


def place() -> World:
    """This process's place in the job; of a successor that rehearses the one that it may get."""
    own = settings()
    return world_from_environment(_place or os.environ, own.replicas or own.default_replicas)


def move(environment: Mapping[str, str]) -> None:
    """From now on this process has the place that a process of this environment would have.

    Its own environment stays as its script has found it.
    """
    global _place
    _place = dict(environment)


def tf_config() -> str:
    """The TF_CONFIG of this process's place; "" for none."""
    return (_place or os.environ).get("TF_CONFIG", "")


def may_stay() -> bool:
    """Whether this worker may live through several rounds, as who computes replicas of a job."""
    own = settings()
    return own.stays and own.recovers and not _one_for_good and fixed_replicas() > 1


def fixed_replicas() -> int:
    """How many replicas the job has, however many workers there are.

    Returns:
      0 where there is one for each worker, and nobody has stated that; and on a task that does not
      train.
    """
    here, own = world(), settings()
    if here.role not in ("chief", "worker") or (here.size > 1 and not tf_config()):
        return 0  # a script that has taken TF_CONFIG away trains alone
    others_come = here.replicas != here.size or (own.stays and not _one_for_good)
    return own.replicas or (own.default_replicas if others_come else 0)


def take_one_for_good(why: str) -> bool:
    """Has this worker compute one replica from now on, whoever comes and goes.

    What nobody has asked for is left out where a script cannot have it, or it would cost something:
    the worker does not stay then, but starts again when another one dies. All workers come here, at
    the same place of their script.

    Args:
      why: is told as the reason why it does not stay.

    Returns:
      False, and nothing has changed, where it has been asked for, or a worker holds several.
    """
    global _one_for_good
    own, here = settings(), place()
    nobody_asks = own.in_place == "auto" and not (own.replicas or own.rehearses)
    if nobody_asks and here.replicas == here.size > 1:
        _one_for_good = _one_for_good or why
    return bool(_one_for_good)


def note_asked(how: str) -> None:
    """Notes that the script has asked for its place, and may go by an answer that grows old."""
    global _asked_by, _has_asked
    _has_asked = True
    if not _asked_by and settings().in_place == "auto":
        _asked_by = f"the script has asked for its place: {how}"


def has_asked() -> bool:
    """Whether the script knows this worker's place, and may have values that are its alone."""
    return _has_asked


def why_not_stay() -> str:
    """Why this worker does not stay, as far as nobody has asked that it does; "" where it can."""
    return _one_for_good or _asked_by


def one_for_good() -> str:
    """Why this worker computes one replica for good; "" where it may come to hold others."""
    return _one_for_good


# What a worker refuses because it holds several replicas; and because it is to train with others.
_OF_SEVERAL, _OF_OTHERS = ("TFRUN-107", "TFRUN-518"), ("TFRUN-503", "TFRUN-512")


def can_do_with_one(code: str) -> bool:
    """Whether what a script is refused by this code could be done with one replica a worker.

    Only where nobody has stated another number: then the job may have that.
    """
    if settings().replicas or not fixed_replicas():
        return False
    return code in _OF_SEVERAL or (world().size == 1 and code in _OF_OTHERS)


def world_from_environment(environment: Mapping[str, str], replicas: int = 0) -> World:
    """Reads `RANK`, `WORLD_SIZE`, … when tfrun set them, else `TF_CONFIG`.

    Args:
      environment: of the process.
      replicas: of the job; 0 where it states none.
    """
    try:
        config = json.loads(environment.get("TF_CONFIG") or "{}")
        cluster: dict[str, list[str]] = config.get("cluster", {})
        chiefs, workers = len(cluster.get("chief", [])), len(cluster.get("worker", []))
        role = str(config.get("task", {}).get("type", "worker"))
        index = int(config.get("task", {}).get("index", 0))
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError):
        return World()  # cluster.tf_config reports what is wrong with it
    trainers = chiefs + workers
    rank = index + (chiefs if role == "worker" else 0)
    is_chief = role == "chief" or (role == "worker" and index == 0 and not chiefs)
    by_tfrun = ROUND in environment
    size = int(environment.get("WORLD_SIZE", trainers)) if by_tfrun else max(trainers, 1)
    return World(
        rank=int(environment.get("RANK", rank)) if by_tfrun else rank,
        size=size,
        replicas=(replicas if role in ("chief", "worker") else 0) or size,
        local_rank=int(environment.get("LOCAL_RANK", 0)) if by_tfrun else 0,
        local_size=int(environment.get("LOCAL_WORLD_SIZE", 1)) if by_tfrun else 1,
        role=role,
        is_chief=is_chief or (not cluster and role != "evaluator"),
        round=int(environment.get(ROUND, 0)),
        in_job=by_tfrun or bool(cluster),
    )
