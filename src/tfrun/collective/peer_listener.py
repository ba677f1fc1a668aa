"""Connects the workers of a round: each listens, and the lower rank calls the higher one.

The port stays open while the worker lives: who looks at it sees that. On rank 0 it also leads to
the key-value store that all share.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping

from tfrun.collective import handshake
from tfrun.collective.collective import Collective
from tfrun.collective.errors import PeerGone
from tfrun.collective.key_value_store import RemoteStore, Store
from tfrun.collective.links import Link

BACKLOG = 128
HANDSHAKE_SECONDS = 10.0
STORE_SECONDS = 2.0  # to connect with the store of a worker that has been there
CALL_SECONDS = 10.0  # for one attempt to connect: the kernel's own takes two minutes
AT_ONCE = 64  # handshakes; more callers than that wait, and the oldest are hung up on for them
PATIENCE_SECONDS = 1.0  # with a handshake, when others wait: two messages each way
FIRST_RETRY_SECONDS = 0.002  # workers that begin a round together are late by this much
RETRY_SECONDS = 0.05
SELDOM_SECONDS = 0.5  # between two calls to one who has not come for a while
CALLS = 3  # to a peer that hangs up: it may have been in a hurry


class PeerListener:
    """The port at which the other workers of a round connect to this one.

    Args:
      me: this worker's rank.
      world: how many workers.
      key: the round's secret, see `handshake.key_of`.
      host: the address of this machine that its peers use; where it is none of this machine's own
        (a pod's service, a forwarded port) all of them are listened on.
      port: to listen on; 0 is any that is free.

    Attributes:
      answers: serves a peer that asks for something until it hangs up, see asking.py.
    """

    def __init__(self, me: int, world: int, key: str, host: str = "", port: int = 0) -> None:
        self._me, self._world, self._key = me, world, key
        self._listening = listen(host, port)
        self._store = Store()
        self._shaking: dict[socket.socket, float] = {}  # since when, the oldest first
        self._changed = threading.Condition()
        self._came: dict[int, socket.socket] = {}
        self._closed = self._complete = False
        self._ended = ""  # why nobody is waited for any more
        self._group: Collective | None = None
        self.answers: Callable[[socket.socket], None] | None = None
        threading.Thread(target=self._accept, name="tfrun peer listener", daemon=True).start()

    @property
    def port(self) -> int:
        return self._listening.getsockname()[1]

    def links(
        self, addresses: Mapping[int, tuple[str, int]], peers: Collection[int], seconds: float
    ) -> dict[int, Link]:
        """Connects with `peers`; those that call meanwhile and are not among them are kept.

        Args:
          addresses: host and port of each peer, by rank.
          peers: their ranks.
          seconds: how long it may take.

        Raises:
          PeerGone: one has not come, or is not to be reached.
        """
        deadline = time.monotonic() + seconds
        found: dict[int, socket.socket] = {}
        try:
            for peer in sorted(peer for peer in peers if peer > self._me):
                found[peer] = self._call(peer, addresses[peer], deadline)
            with self._changed:
                for peer in sorted(peer for peer in peers if peer < self._me):
                    left = deadline - time.monotonic()
                    self._changed.wait_for(
                        lambda p=peer: p in self._came or self._ended, max(0.0, left)
                    )
                    if self._ended or peer not in self._came:
                        reason = self._ended or f"has not connected within {seconds:g} s"
                        raise PeerGone(peer, reason)
                    found[peer] = self._came.pop(peer)
            return {rank: Link(rank, connection) for rank, connection in found.items()}
        except BaseException:
            for connection in found.values():
                connection.close()
            raise

    def store(self, address: tuple[str, int]) -> Store | RemoteStore:
        """The strings that all workers share.

        Args:
          address: of rank 0's listener.
        """
        if self._me == 0:
            return self._store
        return RemoteStore(
            lambda: self._call(0, address, time.monotonic() + STORE_SECONDS, handshake.STORE)
        )

    def ask(self, peer: int, address: tuple[str, int], seconds: float) -> socket.socket:
        """Connects with a peer that is to answer something, see asking.py.

        Raises:
          PeerGone: it is not to be reached.
        """
        return self._call(peer, address, time.monotonic() + seconds, handshake.ASK)

    def reach(self, peer: int, address: tuple[str, int], seconds: float) -> None:
        """Waits until a peer's port accepts a connection, which later says that the peer lives.

        Raises:
          PeerGone: it does not.
        """
        self._call(peer, address, time.monotonic() + seconds, use=b"").close()

    def take_no_more(self) -> None:
        """All workers have connected: who comes now hears that somebody lives here, no more."""
        with self._changed:
            self._complete = True
            for connection in self._came.values():
                connection.close()
            self._came.clear()

    def forms(self, group: Collective) -> None:
        """From now on `abort` ends this one, too, which these connections are for."""
        with self._changed:
            self._group = group
        if self._ended:
            group.abort(self._ended)

    def abort(self, reason: str) -> None:
        """Waits for no peer any more, and makes all fail that has been formed; from any thread."""
        with self._changed:
            self._ended, group = self._ended or reason, self._group
            self._changed.notify_all()
        if group is not None:
            group.abort(reason)

    def close(self) -> None:
        """Listens no more, and hangs up on who is not needed."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()
        with self._changed:
            self._changed.notify_all()
            for connection in self._came.values():
                connection.close()
            self._came.clear()
            # They know of this listener: the memory of a round that is over would stay with them.
            self._group = self.answers = None

    def _call(
        self, peer: int, address: tuple[str, int], deadline: float, use: bytes = handshake.LINK
    ) -> socket.socket:
        hung_up, pause = 0, FIRST_RETRY_SECONDS
        while True:
            left = deadline - time.monotonic()
            try:
                connection = socket.create_connection(address, min(max(0.1, left), CALL_SECONDS))
                try:
                    if not use:
                        return connection
                    connection.settimeout(HANDSHAKE_SECONDS)
                    own = {"me": self._me, "peer": peer, "world": self._world}
                    handshake.call(connection, self._key, **own, use=use)
                    return connection
                except BaseException:
                    connection.close()
                    raise
            except OSError as error:  # a full backlog, or a network that is being set up
                hung_up += isinstance(error, handshake.HungUp)
                again = not isinstance(error, handshake.HandshakeRefused) or (
                    isinstance(error, handshake.HungUp) and hung_up < CALLS
                )
                if not again or left < RETRY_SECONDS:
                    where = f"{address[0]}:{address[1]}"
                    raise PeerGone(peer, f"is not to be reached at {where}: {error}") from None
                with self._changed:
                    self._changed.wait_for(lambda: self._ended, pause)
                if self._ended and use != handshake.STORE:
                    raise PeerGone(peer, self._ended) from None
                pause = min(SELDOM_SECONDS, (1.5 if pause < RETRY_SECONDS else 1.1) * pause)

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed; or no file is free, which may pass
                time.sleep(RETRY_SECONDS)
                continue
            self._make_room_for(connection)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _make_room_for(self, connection: socket.socket) -> None:
        """Strangers who say nothing would keep peers out; who knows the secret is quick."""
        with self._changed:
            while len(self._shaking) >= AT_ONCE and not self._closed:
                oldest, since = next(iter(self._shaking.items()))
                left = since + PATIENCE_SECONDS - time.monotonic()
                if left > 0:
                    self._changed.wait(left)
                    continue
                del self._shaking[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads
            self._shaking[connection] = time.monotonic()

    def _answer(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(HANDSHAKE_SECONDS)
            peer, use = handshake.answer(connection, self._key, me=self._me, world=self._world)
            if use == handshake.STORE:
                self._left_shaking(connection)
                with connection:
                    self._store.serve(connection)
                return
            if use == handshake.ASK and (answers := self.answers) is not None:
                self._left_shaking(connection)
                with connection:
                    answers(connection)
                return
            with self._changed:
                if use != handshake.LINK or self._complete or self._closed or peer in self._came:
                    connection.close()
                else:
                    self._came[peer] = connection
                    self._changed.notify_all()
        except OSError:
            connection.close()  # a stranger, or a peer that has died: it is not waited for here
        finally:
            self._left_shaking(connection)

    def _left_shaking(self, connection: socket.socket) -> None:
        with self._changed:
            self._shaking.pop(connection, None)
            self._changed.notify_all()


def listen(host: str, port: int = 0) -> socket.socket:
    """Returns a listening socket on the interface of `host`, else ("") on all of them."""
    with contextlib.suppress(OSError):
        if host:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
    return socket.create_server(("", port), backlog=BACKLOG)
