"""A peer that dies, stops, lies or stands elsewhere: an error at once, never a wrong sum."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from test_collective_sums import at_once, collectives

from tfrun.collective import handshake, peer_listener, stamps
from tfrun.collective.collective import Collective
from tfrun.collective.errors import Disagreement, PeerAbsent, PeerGone
from tfrun.collective.form_collective import form
from tfrun.collective.links import Patience
from tfrun.collective.peer_listener import PeerListener
from tfrun.job.first_failure import is_peer_error

PEER = """
import sys
from pathlib import Path
import numpy as np
from tfrun.collective.form_collective import form
from tfrun.collective.peer_listener import PeerListener
port, count = int(sys.argv[1]), int(sys.argv[2])
folder = Path(sys.argv[3]) if sys.argv[3] else None
listener = PeerListener(0, 2, "secret", "127.0.0.1")
print(listener.port, flush=True)
places = [("127.0.0.1", listener.port), ("127.0.0.1", port)]
group = form(listener, 0, 2, places, folder=folder)
tensor = np.ones(count, np.float32)
while True:
    group.all_reduce([tensor])
"""


class Peer:
    """Rank 0 in a process of its own, which sums for ever; and this process's rank 1."""

    def __init__(self, count: int, patience: Patience, folder: Path, shares: bool) -> None:
        self.listener = listener = PeerListener(1, 2, "secret", "127.0.0.1")
        mine = folder if shares else None
        self.process = subprocess.Popen(
            [sys.executable, "-c", PEER, str(listener.port), str(count), str(mine or "")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where it ends with an error once this one is done
            text=True,
        )
        assert self.process.stdout
        with self.process.stdout as told:
            port = int(told.readline())
        self.group = form(
            listener,
            1,
            2,
            [("127.0.0.1", port), ("127.0.0.1", listener.port)],
            folder=mine,
            patience=patience,
        )
        self.tensor = np.ones(count, np.float32)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_) -> None:
        self.group.close()
        self.listener.close()
        self.process.kill()
        self.process.wait(10)

    def sum_until_it_fails(self) -> tuple[int, PeerGone]:
        done = 0
        try:
            while True:
                (total,) = self.group.all_reduce([self.tensor])
                assert total.min() == total.max() == 2.0  # never a torn one
                done += 1
        except PeerGone as error:
            return done, error


@pytest.mark.parametrize(("count", "shares"), [(16, False), (3_000_000, False), (3_000_000, True)])
def test_a_killed_peer_is_noticed_at_once(count: int, shares: bool, tmp_path: Path) -> None:
    with Peer(count, Patience(timeout=20), tmp_path, shares) as peer:
        killed: list[float] = []

        def kill() -> None:
            killed.append(time.monotonic())
            peer.process.kill()

        peer.group.all_reduce([peer.tensor])  # it is there
        threading.Timer(0.3, kill).start()
        _, error = peer.sum_until_it_fails()
        assert time.monotonic() - killed[0] < 5  # its patience would last for 20
        assert error.rank == 0
        # The recovery takes it for what it is, also as TensorFlow passes it on.
        assert is_peer_error("InvalidArgumentError", f"assertion failed: [PeerGone: {error}]")
        assert not list(tmp_path.iterdir())
        with pytest.raises(PeerGone):  # and there is no other collective
            peer.group.all_reduce([np.zeros(1)])


def test_a_stopped_peer_is_asked_about_and_given_up(tmp_path: Path) -> None:
    answers = iter(["", "does not answer"])
    asked: list[int] = []

    def check(rank: int) -> str:
        asked.append(rank)
        return next(answers)

    with Peer(100_000, Patience(check=check), tmp_path, True) as peer:
        threading.Timer(0.2, lambda: os.kill(peer.process.pid, signal.SIGSTOP)).start()
        began = time.monotonic()
        _, error = peer.sum_until_it_fails()
        assert "rank 0 does not answer" in str(error)
        assert asked == [0, 0] and time.monotonic() - began < 10


def test_a_late_peer_is_waited_for_without_a_processor() -> None:
    with collectives(2, timeout=None) as (first, second):
        used = time.process_time()
        late = threading.Timer(1.5, lambda: second.all_reduce([np.ones(3)]))
        late.start()
        assert first.all_reduce([np.ones(3)])[0].tolist() == [2.0, 2.0, 2.0]
        assert time.process_time() - used < 0.3
        late.join(10)


def failure_of(group: Collective, tensor: np.ndarray) -> str:
    try:
        group.all_reduce([tensor])
    except (Disagreement, PeerGone) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_one_that_leaves_fails_all() -> None:
    large = np.ones(1 << 20, np.float32)
    with collectives(4) as groups:
        threading.Timer(0.3, groups[3].close).start()
        failures = at_once([lambda g=g: failure_of(g, large) for g in groups[:3]])
        assert all(failure.startswith("PeerGone") for failure in failures)


def test_abort_from_another_thread() -> None:
    with collectives(2, timeout=None) as (first, _):
        threading.Timer(0.2, first.abort, ["a peer has left the round"]).start()
        with pytest.raises(PeerGone, match="a peer has left the round"):
            first.all_reduce([np.ones(3)])
        with pytest.raises(PeerGone, match="a peer has left the round"):
            first.all_reduce([np.ones(3)])


@pytest.mark.parametrize("count", [4, 100_000])
@pytest.mark.parametrize("other", ["dtype", "shape", "order"])
def test_workers_that_do_different_things_are_told(count: int, other: str) -> None:
    mine = np.ones(count, np.float32)
    theirs = {"dtype": mine.astype(np.int32), "shape": mine.reshape(2, -1), "order": mine}[other]
    with collectives(2) as (first, second):
        if other == "order":
            at_once([lambda: first.all_reduce([mine]), lambda: second.all_reduce([mine])])
            second.counts.collectives += 1
        failures = at_once([lambda: failure_of(first, mine), lambda: failure_of(second, theirs)])
        assert all(failures)
        told = {"dtype": "other dtypes", "shape": "other dtypes", "order": "its collective 4"}
        assert any(told[other] in failure for failure in failures), failures


def test_workers_in_other_calls_are_told_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they sum may be of one size: nothing else would ever tell."""
    made = stamps.stamp(1, 2, 3)
    monkeypatch.setattr(stamps, "_place", stamps.ScriptPlace(phase=2, call=2, line=14))
    mine = stamps.stamp(1, 2, 3)
    with pytest.raises(Disagreement, match=r"worker 1 is in a collective, and this one in model\."):
        stamps.agree(mine, made, 1)
    monkeypatch.setattr(stamps, "_place", stamps.ScriptPlace(phase=2, call=2, line=99))
    stamps.agree(mine, stamps.stamp(1, 2, 3), 1)  # the same call in another line
    monkeypatch.setattr(stamps, "_place", stamps.ScriptPlace(phase=3, call=3, line=16))
    told = (
        r"TFRUN-406: worker 1 is in model.predict \(line 16\), and this one in model.evaluate \(l"
    )
    with pytest.raises(Disagreement, match=told):
        stamps.agree(mine, stamps.stamp(1, 2, 3), 1)


def wait_in(group: Collective, kind: str) -> str:
    """The error of a collective, or "waits" when it would do so for ever."""
    try:
        if kind == "gather":
            group.all_gather([np.ones(100_000)])
        else:
            group.all_reduce([np.ones(3 if kind == "small" else 100_000)])
    except (Disagreement, PeerGone) as error:
        return type(error).__name__
    return "went on"


@pytest.mark.parametrize("machines", [(), (3,)])
@pytest.mark.parametrize("last", ["small", "large", "gather"])
@pytest.mark.parametrize("others", ["small", "large", "gather"])
def test_one_of_three_is_elsewhere(
    others: str, last: str, machines: tuple[int, ...], tmp_path: Path
) -> None:
    """Who is sent less than he waits for sees at its beginning that it is something else."""
    for odd in range(3) if others != last else ():
        kinds = [last if rank == odd else others for rank in range(3)]
        with collectives(3, timeout=20, machines=machines, folder=str(tmp_path)) as groups:
            began = time.monotonic()
            works = [lambda g=g, k=k: wait_in(g, k) for g, k in zip(groups, kinds, strict=True)]
            found = at_once(works)
            assert "Disagreement" in found and time.monotonic() - began < 15


def test_who_waits_tells_where() -> None:
    """Of four, two do not come, and the others hear nothing of each other."""
    told: list[int] = []
    with collectives(4, timeout=20, tell=lambda rank: told.append(rank)) as groups:
        ends = threading.Thread(target=lambda: end_when(told, groups))
        ends.start()
        works = [lambda: wait_in(groups[0], "small"), lambda: wait_in(groups[2], "gather")]
        with pytest.raises(PeerAbsent, match="parted"):
            at_once(works)
        ends.join(20)
        (first, mark, where), (second, other, _) = groups[0].stands, groups[2].stands
        assert first == second and mark != other and where == "in a collective"


def end_when(told: list[int], groups: list[Collective]) -> None:
    until = time.monotonic() + 20
    while len(set(told)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    for group in groups:
        group.end("parted")


def test_after_the_last_collective_of_a_peer_none_is_waited_for() -> None:
    with collectives(2, timeout=None) as (first, second):
        at_once([lambda g=g: g.all_reduce([np.ones(3)]) for g in (first, second)])
        last = second.counts.collectives
        first.end_after(last + 1, "its script has ended")  # in the midst of one more
        late = threading.Timer(0.2, lambda: second.all_reduce([np.ones(3)]))
        late.start()
        assert first.all_reduce([np.ones(3)])[0].tolist() == [2.0, 2.0, 2.0]
        for _ in range(2):
            with pytest.raises(PeerAbsent, match="its script has ended"):
                first.all_reduce([np.ones(3)])
        late.join(10)


def test_who_waits_already_is_told_that_nobody_comes() -> None:
    with collectives(2, timeout=None) as (first, _):
        last = first.counts.collectives
        threading.Timer(0.2, first.end_after, [last, "its script has ended"]).start()
        with pytest.raises(PeerAbsent, match="its script has ended"):
            first.all_reduce([np.ones(3)])


def test_strangers_are_not_let_in_and_do_not_delay() -> None:
    listener = PeerListener(1, 2, "secret", "127.0.0.1")
    address = ("127.0.0.1", listener.port)
    silent = [socket.create_connection(address) for _ in range(5)]
    noise = socket.create_connection(address)
    noise.sendall(os.urandom(1000))
    wrong = socket.create_connection(address)
    wrong.settimeout(5)
    with pytest.raises(handshake.HandshakeRefused, match="secret"):
        handshake.call(wrong, "another secret", me=0, peer=1, world=2)
    earlier = socket.create_connection(address)
    earlier.settimeout(5)
    with pytest.raises(OSError):
        handshake.call(earlier, "secret", me=0, peer=1, world=3)
    other = PeerListener(0, 2, "secret", "127.0.0.1")
    began = time.monotonic()
    links = at_once(
        [
            lambda: listener.links({}, {0}, 10)[0],
            lambda: other.links({1: address}, {1}, 10)[1],
        ]
    )
    listener.close()
    other.close()
    assert time.monotonic() - began < 5
    for end in (*silent, noise, wrong, earlier, *links):
        end.close()


def test_many_silent_strangers_are_hung_up_on() -> None:
    """They held all the places where handshakes are done, for as long as one may take."""
    listener, other = (PeerListener(rank, 2, "secret", "127.0.0.1") for rank in (1, 0))
    address = ("127.0.0.1", listener.port)
    silent = [socket.create_connection(address) for _ in range(peer_listener.AT_ONCE + 10)]
    began = time.monotonic()
    links = at_once(
        [
            lambda: listener.links({}, {0}, 30)[0],
            lambda: other.links({1: address}, {1}, 30)[1],
        ]
    )
    assert time.monotonic() - began < peer_listener.HANDSHAKE_SECONDS / 2
    for end in (listener, other, *silent, *links):
        end.close()


def test_a_wrong_secret_among_workers_is_said() -> None:
    first, second = PeerListener(0, 2, "one", "127.0.0.1"), PeerListener(1, 2, "two", "127.0.0.1")
    try:
        with pytest.raises(PeerGone, match="does not know this job's secret"):
            first.links({1: ("127.0.0.1", second.port)}, {1}, 10)
    finally:
        first.close()
        second.close()


def test_a_peer_that_never_comes_is_said_in_time() -> None:
    listener = PeerListener(1, 2, "secret")
    with pytest.raises(PeerGone, match="rank 0 has not connected within"):
        listener.links({}, {0}, 0.2)
    listener.close()


def test_the_secret_is_not_on_the_wire_and_belongs_to_a_round() -> None:
    assert handshake.key_of("token", 1) != handshake.key_of("token", 2)
    here, there = socket.socketpair()
    said = bytearray()

    class Ear:
        def __init__(self, inner: socket.socket) -> None:
            self._inner = inner

        def sendall(self, data: bytes) -> None:
            said.extend(data)
            self._inner.sendall(data)

        def recv(self, count: int) -> bytes:
            data = self._inner.recv(count)
            said.extend(data)
            return data

    with here, there:
        key = handshake.key_of("token", 1)
        at_once(
            [
                lambda: handshake.call(Ear(here), key, me=0, peer=1, world=2),  # type: ignore[arg-type]
                lambda: handshake.answer(there, key, me=1, world=2),
            ]
        )
    assert len(said) > 100
    assert b"token" not in said and key.encode() not in said and bytes.fromhex(key) not in said


def test_nothing_is_left_behind() -> None:
    def open_now() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    if not Path("/proc/self/fd").exists():
        pytest.skip("NOT TESTED: the system does not show what a process has open")
    before = open_now()
    with collectives(3) as groups:
        at_once([lambda g=g: g.all_reduce([np.ones(5)]) for g in groups])
    deadline = time.monotonic() + 5
    while open_now() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert open_now() <= before
