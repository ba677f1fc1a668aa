"""Forms a round's workers into a `Collective`: who is where, who connects with whom."""

from __future__ import annotations

import contextlib
import hashlib
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tfrun.collective.asking import Asking
from tfrun.collective.collective import SMALL_BYTES, Collective
from tfrun.collective.compress import FORMATS, Residuals
from tfrun.collective.duplex_transfer import Inlet, Pump
from tfrun.collective.errors import Disagreement
from tfrun.collective.links import Link, Patience
from tfrun.collective.peer_listener import PeerListener
from tfrun.collective.shared_memory_sums import Shared, make
from tfrun.collective.tcp_sums import Flat, partners

CONNECT_SECONDS = 60.0
_WAYS = ("", *FORMATS)


def memory_name(folder: Path | None) -> int:
    """A number for the memory behind a directory, equal for those that can share it; 0 is none."""
    if folder is None:
        return 0
    try:
        found = folder.stat()
        boot = Path("/proc/sys/kernel/random/boot_id")
        machine = boot.read_text().strip() if boot.exists() else socket.gethostname()
    except OSError:
        return 0
    name = f"{machine}:{found.st_dev}:{found.st_ino}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=7).digest(), "big") or 1


def form(
    listener: PeerListener,
    rank: int,
    world: int,
    addresses: Sequence[tuple[str, int]],
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
      listener: this worker's. It goes on listening when this is done: that its port accepts
        connections says that this process lives. Where this fails, it is closed.
      rank: this worker's.
      world: how many workers.
      addresses: host and port of each worker's listener, by rank.
      folder: a directory in the memory that this worker can share; None shares none.
      patience: how long a silent peer is waited for.
      compress: a key of `compress.FORMATS`, in which gradients travel; "" is none.
      residuals: a directory in memory that outlives this process, see compress.py.
      small_bytes: see `Collective`.
      seconds: how long it may take.

    Raises:
      PeerGone: a peer has not come, or is not to be reached.
      Disagreement: it has another `compress` or `small_bytes`.
    """
    patience = patience or Patience()
    open_links: dict[int, Link] = {}

    def connect(ranks: set[int]) -> Mapping[int, Link]:
        new = ranks - open_links.keys() - {rank}
        open_links.update(listener.links({peer: addresses[peer] for peer in new}, new, seconds))
        return open_links

    with contextlib.ExitStack() as undo:
        undo.callback(listener.close)
        group = Collective(rank, connect(partners(rank, world)), world, patience)
        undo.callback(group.close)
        listener.forms(group)
        group.asking = Asking(listener, addresses)
        _share(group, folder, connect, Pump(patience), (compress, small_bytes))
        group.small_bytes = small_bytes
        if compress:
            group.compress(Residuals(FORMATS[compress], residuals, rank))
        # Who has been called has not called: a firewall may let the one through and not the other.
        callers = {peer for peer in {0, *open_links} if peer < rank}
        for peer in sorted(callers):
            listener.reach(peer, addresses[peer], seconds)
        listener.take_no_more()
        undo.pop_all()
    return group


def _share(
    group: Collective,
    folder: Path | None,
    connect: Callable[[set[int]], Mapping[int, Link]],
    pump: Pump,
    settings: tuple[str, int],
) -> None:
    """Has those that can share memory do so."""
    rank, world = group.rank, group.world
    (names,) = group.all_gather([np.array(memory_name(folder))])
    members = _members(rank, [int(name) for name in names])
    path = (folder or Path()) / f"collective-{members[0]}"
    me, count = members.index(rank), len(members)
    if count > 1:
        near = {members[i] for i in partners(me, count)}
        tree = {members[0]} if me else set(members)
        links = connect(near | tree)
        if not _made(path, me, members, links, pump):
            members, me, count = [rank], 0, 1
    # On every worker what each has: the first worker of its machine, and its settings.
    own = np.array([members[0], _WAYS.index(settings[0]), settings[1]])
    (table,) = group.all_gather([own])
    leaders, ways, small = np.stack(table, axis=1).tolist()
    _agree("gradients to travel", [f"as {_WAYS[way]}" if way else "as they are" for way in ways])
    _agree("sums to count as small up to so many bytes:", [str(size) for size in small])
    firsts = sorted(set(leaders))
    across = None
    if rank in firsts and len(firsts) > 1:
        links = connect(set(firsts))
        between = {i: links[first] for i, first in enumerate(firsts) if first != rank}
        across = Flat(firsts.index(rank), between, len(firsts), pump)
    links = connect(set())
    if len(firsts) == world:
        group.share(None, links.values())
        return
    machines = tuple(tuple(r for r in range(world) if leaders[r] == first) for first in firsts)
    local = {i: links[member] for i, member in enumerate(members) if member in links}
    group.share(Shared(path, rank, machines, local, pump, across), links.values())
    group.all_reduce([np.zeros(1)])  # everyone has it open
    if not me and count > 1:
        path.unlink()  # so that it goes with the last one that has it open


def _agree(what: str, wanted: Sequence[str]) -> None:
    """Raises `Disagreement` unless all want the same."""
    for rank, other in enumerate(wanted):
        if other != wanted[0]:
            raise Disagreement(f"rank 0 wants {what} {wanted[0]}, and rank {rank} wants {other}")


def _members(rank: int, names: Sequence[int]) -> list[int]:
    """The ranks next to each other that share this worker's memory, itself among them.

    Workers of a machine are neighbours in rank (cluster/tasks.py), so nobody else is looked at.

    Args:
      rank: this worker's.
      names: the `memory_name` of each worker.
    """
    first = last = rank
    while names[rank] and first > 0 and names[first - 1] == names[rank]:
        first -= 1
    while names[rank] and last < len(names) - 1 and names[last + 1] == names[rank]:
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
