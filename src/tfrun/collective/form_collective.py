"""Forms a round's workers into a `Collective`: who is where, who connects with whom."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfrun.collective.collective import SMALL_BYTES, Collective
from tfrun.collective.compress import FORMATS, Residuals
from tfrun.collective.duplex_transfer import Inlet, Pump
from tfrun.collective.errors import Disagreement
from tfrun.collective.links import Link, Patience
from tfrun.collective.peer_listener import PeerListener
from tfrun.collective.shared_memory_sums import Shared, barrier_partners, make
from tfrun.collective.tcp_sums import Flat, partners

CONNECT_SECONDS = 60.0
_WAYS = ("", *FORMATS)


@dataclass(frozen=True, kw_only=True)
class WorkerAddress:
    """Where a worker's peers reach it.

    Attributes:
      host: the address that its peers reach it at.
      port: of its `PeerListener`.
      memory: names the memory that it can share; equal for those that can share it with each
        other, "" for who shares none.
    """

    host: str
    port: int
    memory: str

    def text(self) -> str:
        return f"{self.port} {self.memory or '-'} {self.host}"

    @classmethod
    def of(cls, text: str) -> WorkerAddress:
        port, memory, host = text.split(" ", 2)
        return cls(host=host, port=int(port), memory="" if memory == "-" else memory)


def memory_name(folder: Path | None) -> str:
    """The name of the memory behind a directory, for `WorkerAddress.memory`."""
    if folder is None:
        return ""
    try:
        found = folder.stat()
        boot = Path("/proc/sys/kernel/random/boot_id")
        machine = boot.read_text().strip() if boot.exists() else socket.gethostname()
    except OSError:
        return ""
    return f"{machine}:{found.st_dev}:{found.st_ino}"


def form(
    listener: PeerListener,
    rank: int,
    world: int,
    where: Callable[[int], WorkerAddress],
    *,
    folder: Path | None = None,
    patience: Patience | None = None,
    compress: str = "",
    residuals: Path | None = None,
    small_bytes: int = SMALL_BYTES,
    seconds: float = CONNECT_SECONDS,
) -> Collective:
    """Connects this worker with its peers; all workers call this.

    Args:
      listener: this worker's, which listens; it is closed.
      rank: this worker's.
      world: how many workers.
      where: tells where a peer is, once that is known.
      folder: a directory in the memory that this worker can share; None shares none.
      patience: how long a silent peer is waited for.
      compress: a key of `compress.FORMATS`, in which gradients travel; "" is none.
      residuals: a directory in memory that outlives this process, see compress.py.
      small_bytes: see `Collective`.
      seconds: how long it may take.

    Raises:
      PeerGone: a peer has not come.
      Disagreement: it has another `compress` or `small_bytes`.
    """
    patience = patience or Patience()
    open_links: dict[int, Link] = {}

    def connect(ranks: set[int]) -> Mapping[int, Link]:
        new = ranks - open_links.keys() - {rank}
        addresses = {peer: (where(peer).host, where(peer).port) for peer in new}
        open_links.update(listener.links(addresses, new, seconds))
        return open_links

    with contextlib.closing(listener):
        group = Collective(rank, dict(connect(partners(rank, world))), world, patience)
        try:
            _share(group, folder, where, connect, Pump(patience), (compress, small_bytes))
            group.small_bytes = small_bytes
            if compress:
                group.compress(Residuals(FORMATS[compress], residuals, rank))
        except BaseException:
            group.close()
            raise
    return group


def _share(
    group: Collective,
    folder: Path | None,
    where: Callable[[int], WorkerAddress],
    connect: Callable[[set[int]], Mapping[int, Link]],
    pump: Pump,
    settings: tuple[str, int],
) -> None:
    """Has those that can share memory do so."""
    rank, world = group.rank, group.world
    members = _members(rank, world, memory_name(folder), where)
    path = (folder or Path()) / f"collective-{members[0]}"
    me, count = members.index(rank), len(members)
    if count > 1:
        near = {members[i] for pair in barrier_partners(me, count) for i in pair}
        tree = {members[0]} if me else set(members)
        links = connect(near | tree)
        if not _made(path, me, members, links, pump):
            members, me, count = [rank], 0, 1
    # On every worker what each has: the first worker of its machine, and its settings.
    table = np.zeros((3, world), np.int64)
    table[:, rank] = members[0], _WAYS.index(settings[0]), settings[1]
    leaders, ways, small = group.all_reduce([table])[0]
    _agree("gradients to travel", [f"as {_WAYS[way]}" if way else "as they are" for way in ways])
    _agree("sums to count as small up to so many bytes:", [str(size) for size in small])
    firsts = sorted(set(leaders.tolist()))
    if len(firsts) == world:
        return  # nobody shares anything
    across = None
    if rank in firsts and len(firsts) > 1:
        position = firsts.index(rank)
        needed = partners(position, len(firsts))
        links = connect({firsts[i] for i in needed})
        across = Flat(position, {i: links[firsts[i]] for i in needed}, len(firsts), pump)
    links = connect(set())
    local = {i: links[member] for i, member in enumerate(members) if member in links}
    shared = Shared(path, me, count, local, pump, across, len(firsts))
    group.share(shared, links.values())
    group.all_reduce([np.zeros(1)])  # everyone has it open
    if not me and count > 1:
        path.unlink()  # so that it goes with the last one that has it open


def _agree(what: str, wanted: Sequence[str]) -> None:
    """Raises `Disagreement` unless all want the same."""
    for rank, other in enumerate(wanted):
        if other != wanted[0]:
            raise Disagreement(f"rank 0 wants {what} {wanted[0]}, and rank {rank} wants {other}")


def _members(
    rank: int, world: int, memory: str, where: Callable[[int], WorkerAddress]
) -> list[int]:
    """The ranks next to each other that share this worker's memory, itself among them.

    Workers of a machine are neighbours in rank (cluster/tasks.py), so nobody else is asked.
    """
    first, last = rank, rank
    while memory and first > 0 and where(first - 1).memory == memory:
        first -= 1
    while memory and last < world - 1 and where(last + 1).memory == memory:
        last += 1
    return list(range(first, last + 1))


def _made(path: Path, me: int, members: list[int], links: Mapping[int, Link], pump: Pump) -> bool:
    """Whether the first worker has made the file: it tells the others."""
    if me == 0:
        path.unlink(missing_ok=True)  # of a round before
        made = make(path, len(members))
        for member in members[1:]:
            pump.run(links[member], [memoryview(bytes([made]))], links[member], [])
        return made
    answer = Inlet(np.empty(1, np.uint8))
    pump.run(links[members[0]], [], links[members[0]], [answer])
    return bool(answer.into[0])
