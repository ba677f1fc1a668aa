"""Tells for whom a worker waits in the workers' start. Pure, but for the look at their ports.

It waits there without a word and without an end; in TensorFlow's own start it holds Python's lock
meanwhile. Whoever has started the worker can look at its peers' ports all the same: each of them
listens as soon as it waits as well.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence

from tfrun.cluster.address import Address
from tfrun.cluster.cluster_spec import TRAINERS, ClusterSpec, TaskKey

FIRST_SECONDS = 5.0  # of silence, and between two looks
OFTEN_SECONDS = 60.0  # after which a look is taken
SELDOM_SECONDS = 30.0  # so many seconds after the other
STRANGE_SECONDS = 15.0  # of waiting although all ports accept connections
CONNECT_SECONDS = 3.0
AT_ONCE = 64
MOST_NAMED = 5


def awaited(cluster: ClusterSpec, task: TaskKey, *, alone: bool) -> list[tuple[str, str]]:
    """Returns (task, address) of the peers that a worker should look at.

    With parameter servers that is the chief, who connects to all of them.

    Args:
      cluster: the cluster.
      task: the worker.
      alone: nobody else in this job sees the others. Otherwise the first, to whom all connect,
        looks at all, and they look at the first.
    """
    if cluster.count("ps"):
        seen = list(cluster.tasks()) if task.type == "chief" else []
    elif task.type not in TRAINERS or task not in cluster:
        seen = []
    else:
        counts = {role: cluster.count(role) for role in TRAINERS}
        first = TaskKey(type=next(role for role in TRAINERS if counts[role]), index=0)
        seen = [first]  # nothing more for each of a thousand
        if alone or task == first:
            seen = [TaskKey(type=role, index=i) for role in TRAINERS for i in range(counts[role])]
    return [(f"{key.type} {key.index}", str(cluster.address(key))) for key in seen if key != task]


def is_due(seconds: float, last: float | None) -> bool:
    """True when it is time to look and to tell.

    The worker has waited so many seconds, and had `last` at the last look; None before the first.
    """
    if last is None:
        return seconds >= FIRST_SECONDS
    return seconds - last >= (FIRST_SECONDS if seconds < OFTEN_SECONDS else SELDOM_SECONDS)


async def missing(peers: Sequence[tuple[str, Address]]) -> dict[str, str]:
    """Returns why each peer is not reached, as one clause, with its task and address as the key.

    `peers` has (task, address) of each.
    """
    limit = asyncio.Semaphore(AT_ONCE)

    async def look(address: Address) -> str:
        async with limit:
            return await _why_not(address)

    reasons = await asyncio.gather(*(look(address) for _, address in peers))
    pairs = zip(peers, reasons, strict=True)
    return {f"{task} at {address}": reason for (task, address), reason in pairs if reason}


async def _why_not(address: Address) -> str:
    connecting = asyncio.open_connection(address.host, address.port)
    try:
        _, writer = await asyncio.wait_for(connecting, CONNECT_SECONDS)
    except (OSError, asyncio.TimeoutError) as error:
        return why_not_reached(error)
    writer.close()
    return ""


def why_not_reached(error: BaseException) -> str:
    """Reads what became of an attempt to connect; "" when it is none of that."""
    match error:
        case socket.gaierror():
            return f"its name does not resolve ({error.strerror})"
        case ConnectionRefusedError():
            return "connection refused: nothing listens there"
        case asyncio.TimeoutError():
            return "no answer: it is down, or a firewall drops the packets"
        case OSError():
            return (error.strerror or str(error))[:200].lower()
    return ""


def sentence(task: str, seconds: float, peers: int, reasons: Mapping[str, str]) -> str:
    """Returns what a person is told of a worker that waits; "" for nothing.

    `peers` is how many were looked at, `reasons` what `missing` has returned.
    """
    waits = f"{task} waits in the workers' start ({seconds:.0f} s) for "
    if not reasons and seconds < STRANGE_SECONDS:
        return ""  # they are just starting there
    if not reasons:
        others = "its peer, whose port" if peers == 1 else "its peers, whose ports"
        more = "accepts" if peers == 1 else "all accept"
        return f"{waits}{others} {more} connections: is it a worker that listens there?"
    return waits + listed(reasons)


def listed(reasons: Mapping[str, str]) -> str:
    """Returns what `missing` has returned as one clause."""
    named = [f"{peer}: {reason}" for peer, reason in reasons.items()]
    if len(named) > MOST_NAMED:
        named[MOST_NAMED:] = [f"and {len(named) - MOST_NAMED} more"]
    return "; ".join(named)
