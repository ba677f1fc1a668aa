"""Two workers prove to each other that they know the job's secret, for this round.

The secret never travels: each side answers the other's random challenge with an HMAC (RFC 2104,
SHA-256) over everything that was said. A worker of an earlier round, of another job, or a stranger
gets no further than that. What follows is not encrypted, as between TensorFlow's own servers.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct

LINK, STORE, ASK = b"tfrunHC2", b"tfrunKV2", b"tfrunAS1"  # what a connection is for
NONCE_BYTES = 16
PROOF_BYTES = hashlib.sha256().digest_size
_HELLO = struct.Struct(f"!8sIII{NONCE_BYTES}s")  # what for, world size, from, to, challenge


def key_of(token: str, round: int) -> str:
    """The secret of one round's workers, from the job's token, of which it tells nothing."""
    message = f"tfrun host collective, round {round}"
    return hmac.new(token.encode(), message.encode(), hashlib.sha256).hexdigest()


class HandshakeRefused(ConnectionError):
    """The other side is not who it should be."""


class HungUp(HandshakeRefused):
    """The other side has closed the connection: it is no peer, or was in a hurry."""


def call(
    connection: socket.socket, key: str, *, me: int, peer: int, world: int, use: bytes = LINK
) -> None:
    """The side that has connected, for `LINK`, `STORE` or `ASK`.

    Raises:
      Refused: the peer does not know the key.
      OSError: the connection broke, or was silent for its time-out.
    """
    hello = _HELLO.pack(use, world, me, peer, secrets.token_bytes(NONCE_BYTES))
    connection.sendall(hello)
    answer = read(connection, NONCE_BYTES + PROOF_BYTES)
    challenge, proof = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
    if not hmac.compare_digest(proof, _prove(key, b"answer", hello, challenge)):
        raise HandshakeRefused(f"what listens for rank {peer} does not know this job's secret")
    connection.sendall(_prove(key, b"caller", hello, challenge))


def answer(connection: socket.socket, key: str, *, me: int, world: int) -> tuple[int, bytes]:
    """The side that listens; returns the rank of who has connected, and what for.

    Raises as `call`.
    """
    hello = read(connection, _HELLO.size)
    use, their_world, peer, meant, _ = _HELLO.unpack(hello)
    if use not in (LINK, STORE, ASK) or their_world != world or meant != me or peer >= world:
        raise HandshakeRefused("it is not a worker of this round")
    challenge = secrets.token_bytes(NONCE_BYTES)
    connection.sendall(challenge + _prove(key, b"answer", hello, challenge))
    proof = read(connection, PROOF_BYTES)
    if not hmac.compare_digest(proof, _prove(key, b"caller", hello, challenge)):
        raise HandshakeRefused("it does not know this job's secret")
    return peer, use


def _prove(key: str, side: bytes, hello: bytes, challenge: bytes) -> bytes:
    return hmac.new(key.encode(), side + hello + challenge, hashlib.sha256).digest()


def read(connection: socket.socket, count: int) -> bytes:
    """Returns so many bytes; raises `HungUp` where fewer come."""
    data = bytearray()
    while len(data) < count:
        more = connection.recv(min(count - len(data), 1 << 20))
        if not more:
            raise HungUp("it closed the connection")
        data += more
    return bytes(data)
