"""Decides who may watch a job: whoever has its token, came with its link, or is its user.

What agents show is another token: nobody becomes an agent by what is given out here.
"""

from __future__ import annotations

import functools
import hmac
import os
import secrets
import socket
import struct
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

MOST_KEYS = 64  # links that nobody has followed yet
MOST_SESSIONS = 256
LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = frozenset({LOOPBACK, "localhost"})
REFUSED = (
    "This needs the job's token, or the link that `tfrun --page` prints; `tfrun page RUN` prints "
    "another one.\n"
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ESTABLISHED = "01"
_CONNECTIONS = Path("/proc/net/tcp")
_LOOK, _OWN = "look", "own"


def for_onlookers(handler: Handler) -> Handler:
    """Marks what only reads: the status token, a page's session, or the user's own process."""
    return _marked(handler, _LOOK)


def for_owner(handler: Handler) -> Handler:
    """Marks what acts: the status token alone, which no browser sends by itself."""
    return _marked(handler, _OWN)


def _marked(handler: Handler, mark: str) -> Handler:
    @functools.wraps(handler)
    async def marked(request: web.Request) -> web.StreamResponse:
        try:
            answer = await handler(request)
        except web.HTTPException as error:
            error.headers.update(SECURITY)
            raise
        if not answer.prepared:
            answer.headers.update(SECURITY)
        return answer

    marked.tfrun_access = mark  # type: ignore[attr-defined]
    return marked


class Access:
    """Decides who may watch the job."""

    def __init__(self, token: str, *, knows_users: bool) -> None:
        """Args:
        token: the job's status token.
        knows_users: every connection comes from a process of this machine that wants it for
          itself, so the user of that process may look without more. False where others' requests
          are passed on, as by SSH from the hosts of a job.
        """
        self._token, self._knows_users = token, knows_users
        self._keys: OrderedDict[str, None] = OrderedDict()
        self._sessions: OrderedDict[str, None] = OrderedDict()
        self._users: weakref.WeakKeyDictionary[object, bool] = weakref.WeakKeyDictionary()

    def new_key(self) -> str:
        """Returns what a link needs to be let in, once."""
        key = secrets.token_urlsafe(24)
        self._keys[key] = None
        while len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)
        return key

    def redeem(self, key: str) -> str | None:
        """Takes a link's key and returns a browser's session; None for one that is not valid."""
        known = self._known_key(key)
        if known is None:
            return None
        del self._keys[known]
        session = secrets.token_urlsafe(32)
        self._sessions[session] = None
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def _known_key(self, key: str) -> str | None:
        given = key.encode("utf-8", "surrogateescape")
        for known in self._keys:
            if hmac.compare_digest(known.encode(), given):
                return known
        return None

    def admits(self, request: web.Request) -> bool:
        """Whether whoever asks may have what he asks for; other routes than marked ones: never."""
        mark = getattr(request.match_info.handler, "tfrun_access", None)
        if mark is None:
            return False
        if shows_token(request.headers, self._token):
            return True
        if mark != _LOOK:
            return False
        if request.path == "/" and self._known_key(request.query.get("key", "")):
            return True
        return self._has_session(request) or (self._knows_users and self._is_our_user(request))

    def _has_session(self, request: web.Request) -> bool:
        shown = request.cookies.get(cookie_name(request), "").encode("utf-8", "surrogateescape")
        return any(hmac.compare_digest(known.encode(), shown) for known in self._sessions)

    def _is_our_user(self, request: web.Request) -> bool:
        # A page from elsewhere whose name has been made to mean this machine says its own name.
        if _hostname(request.host) not in LOOPBACK_NAMES:
            return False
        if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return False
        transport = request.transport
        if transport is None:
            return False
        if transport not in self._users:
            ends = [transport.get_extra_info(end) for end in ("peername", "sockname")]
            self._users[transport] = all(ends) and is_same_user(ends[0][:2], ends[1][:2])
        return self._users[transport]


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:  # "[": whoever asks may say what he likes
        return None


def shows_token(headers: Mapping[str, str], token: str) -> bool:
    """Whether a request carries a token."""
    # aiohttp reads bytes that are no UTF-8 as lone surrogates.
    given = headers.get("Authorization", "").encode("utf-8", "surrogateescape")
    return hmac.compare_digest(given, f"Bearer {token}".encode())


def cookie_name(request: web.BaseRequest) -> str:
    """Cookies know no ports, and jobs of one machine have different sessions."""
    ends = request.transport.get_extra_info("sockname") if request.transport else None
    return f"tfrun-{ends[1]}" if ends else "tfrun"


def is_same_user(peer: tuple[str, int], here: tuple[str, int]) -> bool:
    """Returns whether the process that has connected is one of this process's user.

    Loopback is open to everybody who is logged in, so an address alone proves nothing; the kernel
    knows who has opened the other end. Linux only.

    Args:
      peer: the connection's other end, as the server sees it.
      here: its end on this side.
    """
    if peer[0] != LOOPBACK or here[0] != LOOPBACK:
        return False
    try:
        with _CONNECTIONS.open() as lines:
            return owner_of(lines, _entry(peer), _entry(here)) == os.getuid()
    except OSError:
        return False  # another system than Linux


def owner_of(lines: Iterable[str], local: str, remote: str) -> int | None:
    """Finds the user who holds an end of a connection; None when nobody does.

    Args:
      lines: /proc/net/tcp: number, local and remote address, state, …, uid (8th), …, inode (10th).
      local: the end, "0100007F:1F90".
      remote: the other one.
    """
    for line in lines:
        fields = line.split()
        # A socket that its process has closed belongs to uid 0 and has no inode.
        if fields[1:4] == [local, remote, _ESTABLISHED] and fields[9] != "0":
            return int(fields[7])
    return None


def _entry(address: tuple[str, int]) -> str:
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
