"""The status API: the job as JSON, its events and logs, its metrics, and the page that shows them.

Everything here only reads. docs/observe.md describes the routes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from aiohttp import web

from tfrun.observe import log_files
from tfrun.observe.access import SECURITY, Access, Handler, cookie_name, for_onlookers, for_owner
from tfrun.observe.events import end_of_lines, new_lines

LOOK_SECONDS = 0.25
CLOSE_SECONDS = 0.5  # for them to read the last of it
STATUS_SECONDS = 1.0
SILENT_SECONDS = 15.0  # until a comment shows that the connection is alive
MOST_STREAMS = 64
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}


class WatchRoutes:
    """The routes by which a job is watched."""

    def __init__(
        self, run_dir: Path, view: Callable[[bool], dict[str, Any]], access: Access
    ) -> None:
        """Args:
        run_dir: the run directory.
        view: gives the job as it is now, as JSON (`JobView.to_json`); asked for the heat map, with
          that.
        access: who may look.
        """
        self._run_dir, self._view, self.access = run_dir, view, access
        self._events = run_dir / "events.jsonl"
        self._parts: dict[str, str] = {}
        self._made = float("-inf")
        self._streams = 0
        self._closing = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def routes(self) -> list[web.RouteDef]:
        """Returns the routes; `Access.admits` is to be asked before any of them."""
        handlers: dict[str, Handler] = {
            "/": self._page,
            "/page/{name}": self._asset,
            "/status": self._status,
            "/events": self._list_events,
            "/stream": self._stream,
            "/logs": self._list_logs,
            "/logs/{name}": self._log,
            "/metrics": self._metrics,
        }
        routes = [web.get(path, for_onlookers(handler)) for path, handler in handlers.items()]
        return [*routes, web.post("/key", for_owner(self._new_key))]

    async def close(self) -> None:
        """Sends what is new to all who look, and lets them go."""
        self._closing.set()
        await _either(self._idle.wait(), CLOSE_SECONDS)

    async def _new_key(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"key": self.access.new_key()})

    async def _page(self, request: web.Request) -> web.StreamResponse:
        # The page itself, not a redirection: a link followed from another site would lose the
        # cookie on the way.
        answer = _packaged("index.html")
        if session := self.access.redeem(request.query.get("key", "")):
            answer.set_cookie(
                cookie_name(request),
                session,
                httponly=True,
                samesite="Strict",
                secure=request.secure,
                path="/",
            )
        return answer

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        return _packaged(request.match_info["name"])

    async def _status(self, request: web.Request) -> web.StreamResponse:
        heat = request.query.get("heat") == "1"
        text = _json(self._view(True)) if heat else _joined(self._status_parts())
        answer = web.Response(text=text, content_type="application/json")
        answer.enable_compression()
        return answer

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        from tfrun.observe import prometheus  # not above: most jobs nobody asks for them

        text = prometheus.exposition(self._view(False))
        return web.Response(body=text, headers={"Content-Type": prometheus.CONTENT_TYPE})

    async def _list_events(self, request: web.Request) -> web.StreamResponse:
        look = new_lines(self._events, _number(request, "offset") or 0, without=_without(request))
        head = json.dumps({"offset": look.offset, "anew": look.anew, "more": look.more})
        text = f'{head[:-1]}, "events": [{",".join(look.lines)}]}}'
        return web.Response(text=text, content_type="application/json")

    async def _list_logs(self, request: web.Request) -> web.StreamResponse:
        files = [asdict(file) for file in log_files.names(self._run_dir)]
        return web.json_response({"logs": files})

    async def _log(self, request: web.Request) -> web.StreamResponse:
        name, start = request.match_info["name"], _number(request, "start")
        most = _number(request, "bytes")
        try:
            piece = log_files.read(
                self._run_dir, name, start=start, most=1 << 16 if most is None else most
            )
        except FileNotFoundError:
            raise web.HTTPNotFound(text=f"there is no log {name!r:.300}\n") from None
        headers = {"X-Log-Start": str(piece.start), "X-Log-Size": str(piece.size)}
        return web.Response(
            body=piece.data, content_type="text/plain", charset="utf-8", headers=headers
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events; their ids are offsets to go on from, which browsers repeat."""
        if self._streams >= MOST_STREAMS:
            raise web.HTTPServiceUnavailable(text="too many are watching already\n")
        again = request.headers.get("Last-Event-ID", "")
        if again.isdecimal():
            offset = int(again)
        elif request.query.get("offset") == "end":
            offset = end_of_lines(self._events)
        else:
            offset = _number(request, "offset") or 0
        without = _without(request)
        answer = web.StreamResponse(headers={**SECURITY, "Content-Type": "text/event-stream"})
        await answer.prepare(request)
        self._streams += 1
        self._idle.clear()
        try:
            await self._send_for_ever(request, answer, offset, without)
        except ConnectionError:
            pass  # whoever it was has gone
        finally:
            self._streams -= 1
            if not self._streams:
                self._idle.set()
        return answer

    async def _send_for_ever(
        self,
        request: web.Request,
        answer: web.StreamResponse,
        offset: int,
        without: frozenset[str],
    ) -> None:
        shown: dict[str, str] = {}
        shown_at, sent_at = float("-inf"), time.monotonic()
        while request.transport is not None:  # they are still there
            look = new_lines(self._events, offset, without=without)
            now, pieces = time.monotonic(), []
            if look.anew:
                pieces.append(f"event: anew\nid: {look.offset}\ndata: {{}}\n\n")
            if look.lines or look.offset != offset:
                data = f"[{','.join(look.lines)}]"
                pieces.append(f"event: events\nid: {look.offset}\ndata: {data}\n\n")
            offset = look.offset
            closing = self._closing.is_set()
            if (closing or now - shown_at >= STATUS_SECONDS) and not look.more:
                shown_at = now
                parts = self._status_parts(anew=closing)
                changed = {key: text for key, text in parts.items() if shown.get(key) != text}
                shown = parts
                if changed:
                    pieces.append(f"event: status\ndata: {_joined(changed)}\n\n")
            if not pieces and now - sent_at > SILENT_SECONDS:
                pieces.append(": still here\n\n")
            if pieces:
                sent_at = now
                await answer.write("".join(pieces).encode())
            if closing and not look.more:
                return
            if not look.more:
                await _either(self._closing.wait(), LOOK_SECONDS)

    def _status_parts(self, *, anew: bool = False) -> dict[str, str]:
        """The view's fields as JSON; made once for all who ask within a part of a second."""
        if anew or time.monotonic() - self._made > STATUS_SECONDS / 2:
            self._parts = {key: _json(value) for key, value in self._view(False).items()}
            self._made = time.monotonic()
        return self._parts


def _joined(parts: Mapping[str, str]) -> str:
    return "{" + ",".join(f'"{key}":{text}' for key, text in parts.items()) + "}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _packaged(name: str) -> web.Response:
    """Returns a file of the page, which is part of the package."""
    folder = resources.files("tfrun.observe") / "page"
    kind = _TYPES.get(Path(name).suffix)
    if kind is None or name not in {file.name for file in folder.iterdir()}:
        raise web.HTTPNotFound
    return web.Response(body=(folder / name).read_bytes(), content_type=kind, charset="utf-8")


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise web.HTTPBadRequest(text=f"{name} is no whole number\n")
    return int(text)


def _without(request: web.Request) -> frozenset[str]:
    return frozenset(filter(None, request.query.get("without", "").split(",")))


async def _either(what: Awaitable[Any], seconds: float) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(what, seconds)
