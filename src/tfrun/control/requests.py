"""What a person asks of a running job over the control port: to stop, and for its stacks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from tfrun.control.controller import Controller
from tfrun.observe.access import for_owner

STACKS_SECONDS = 4.0  # more than an agent takes


def routes(controller: Controller) -> list[web.RouteDef]:
    """Returns the routes; only whoever shows the status token is let in."""

    async def stop(request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        # As a signal to the launcher: SIGTERM saves, SIGINT does not.
        controller.interrupt("SIGINT" if body.get("now") is True else "SIGTERM")
        return web.json_response({"stopping": True})

    async def stacks(request: web.Request) -> web.StreamResponse:
        await _body(request)
        found = controller.ask_for_stacks()
        wanted = {task.name for task in controller.round.tasks if task.runs == "script"}
        deadline = asyncio.get_running_loop().time() + STACKS_SECONDS
        while wanted - found.keys() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        texts = {task: found.get(task, "") for task in sorted(wanted)}
        return web.json_response({"round": controller.round.number, "stacks": texts})

    return [web.post("/stop", for_owner(stop)), web.post("/stacks", for_owner(stacks))]


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read() or b"{}")
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="the body is no JSON object\n")
    return body
