"""Who shares memory with whom, and what happens where there is no room for it."""

from __future__ import annotations

import resource
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_collective_sums import at_once, collectives

from tfrun.collective.collective import Collective
from tfrun.collective.errors import PeerGone
from tfrun.collective.form_collective import form, memory_name
from tfrun.collective.key_value_store import RemoteStore
from tfrun.collective.peer_listener import PeerListener
from tfrun.collective.tcp_sums import partners, rounds


def sums(groups: list[Collective], count: int = 200_000) -> None:
    found = at_once([lambda g=g: g.all_reduce([np.full(count, g.rank + 1.0)]) for g in groups])
    wanted = len(groups) * (len(groups) + 1) / 2
    assert all((mine[0] == wanted).all() for mine in found)


def test_memory_has_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert memory_name(tmp_path / "a") == memory_name(tmp_path / "a" / ".") != 0
    assert memory_name(tmp_path) != memory_name(tmp_path / "a")
    assert memory_name(None) == memory_name(tmp_path / "not there") == 0


def test_without_room_connections_do(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with collectives(4, machines=(2, 2), folder=str(tmp_path)) as groups:
            assert not any(group.shares_memory for group in groups)
            sums(groups)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_with_room_memory_is_shared(tmp_path: Path) -> None:
    with collectives(3, machines=(2, 1), folder=str(tmp_path)) as groups:
        assert all(group.shares_memory for group in groups)
        sums(groups)


@given(st.integers(2, 200))
def test_whoever_one_needs_needs_one(count: int) -> None:
    needed = [partners(me, count) for me in range(count)]
    for me in range(count):
        assert all(me in needed[peer] for peer in needed[me])
        assert me not in needed[me] and len(needed[me]) <= 2 * count.bit_length()


@given(st.integers(2, 70))
def test_one_hears_of_all(count: int) -> None:
    knows = [{me} for me in range(count)]
    for level in range(len(rounds(0, count))):
        heard = [rounds(me, count)[level][1] for me in range(count)]
        told = [rounds(me, count)[level][0] for me in range(count)]
        assert all(heard[told[me]] == me for me in range(count))
        knows = [knows[me] | knows[heard[me]] for me in range(count)]
    assert all(len(known) == count for known in knows)


def test_who_does_not_reach_its_caller_is_not_formed_with_it() -> None:
    """Its port would be closed each time that it is to say that it lives."""
    listeners = [PeerListener(rank, 2, "secret", "127.0.0.1") for rank in (0, 1)]
    there = [("127.0.0.1", listener.port) for listener in listeners]
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = closed.getsockname()
    known = [there, [nowhere, there[1]]]
    groups: list[Collective] = []

    def forms(rank: int) -> None:
        groups.append(form(listeners[rank], rank, 2, known[rank], seconds=2.0))

    first = threading.Thread(target=forms, args=(0,))
    first.start()
    with pytest.raises(PeerGone, match="rank 0 is not to be reached"):
        forms(1)
    first.join(10)
    for group in groups:
        group.close()
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("early", [True, False])
def test_nobody_is_waited_for_once_one_has_gone(rank: int, early: bool) -> None:
    """Whether it calls or is called; and whether it waits already, or not yet."""
    listener = PeerListener(rank, 2, "secret", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = closed.getsockname()
    places = [nowhere, nowhere]
    ending = threading.Timer(0.0 if early else 0.3, listener.abort, ["a peer has left"])
    ending.start()
    if early:
        ending.join(10)
    began = time.monotonic()
    with pytest.raises(PeerGone, match="a peer has left"):
        form(listener, rank, 2, places, seconds=60.0)
    assert time.monotonic() - began < 10  # and not a minute
    ending.join(10)


def test_what_has_been_formed_ends_too() -> None:
    with collectives(2) as groups:
        listener = PeerListener(0, 2, "secret", "127.0.0.1")
        listener.abort("a peer has left")
        listener.forms(groups[0])
        with pytest.raises(PeerGone, match="a peer has left"):
            groups[0].all_reduce([np.zeros(3)])
        listener.close()


def test_strings_are_shared() -> None:
    first, second = (PeerListener(rank, 2, "secret", "127.0.0.1") for rank in (0, 1))
    address = ("127.0.0.1", first.port)
    mine, theirs = first.store(address), second.store(address)
    assert isinstance(theirs, RemoteStore)
    mine.set("a", "1")
    theirs.set("b", "\u00e9" * 1_000_000)
    assert (theirs.get("a", 0), mine.get("b", 0), theirs.get("c", 0.01)) == (
        "1",
        "\u00e9" * 1_000_000,
        None,
    )
    waiting = threading.Timer(0.1, theirs.set, ["c", "3"])  # while this thread's connection waits
    waiting.start()
    assert theirs.get("c", 30) == "3"
    waiting.join(10)
    stranger = PeerListener(1, 2, "another secret", "127.0.0.1")
    with pytest.raises(PeerGone, match="does not know this job's secret"):
        stranger.store(address).get("a", 0)
    for end in (theirs, first, second, stranger):
        end.close()
    third = PeerListener(1, 2, "secret", "127.0.0.1")
    with pytest.raises(PeerGone, match="rank 0 is not to be reached"):
        third.store(("127.0.0.1", address[1])).get("a", 0)
    third.close()
