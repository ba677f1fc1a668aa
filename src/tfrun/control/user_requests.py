"""Answers what a person asks of a running job over the control port: stop, stacks, traces."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from tfrun.control.controller import Controller
from tfrun.control.protocol import messages
from tfrun.control.rounds.model import State
from tfrun.job import profile_request
from tfrun.observe.access import for_owner
from tfrun.observe.monitor import Monitor

STACKS_SECONDS = 4.0  # more than an agent takes


def routes(controller: Controller, monitor: Monitor) -> list[web.RouteDef]:
    """Returns the routes; only whoever shows the status token is let in."""

    async def stop(request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        # As a signal to the launcher: SIGTERM saves, SIGINT does not.
        controller.interrupt("SIGINT" if _flag(body, "now") else "SIGTERM")
        return web.json_response({"stopping": True})

    async def stacks(request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        found = controller.ask_for_stacks(threads=_flag(body, "threads"))
        wanted = {task.name for task in controller.runner.round.tasks if task.runs == "script"}
        deadline = asyncio.get_running_loop().time() + STACKS_SECONDS
        while wanted - found.keys() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        texts = {task: found.get(task, "") for task in sorted(wanted)}
        return web.json_response({"round": controller.runner.round.number, "stacks": texts})

    async def traces(request: web.Request) -> web.StreamResponse:
        body, training = await _body(request), monitor.view()["training"]
        steps, folder = body.get("steps"), body.get("folder")
        if type(steps) is not int or not 0 < steps <= profile_request.MOST_STEPS:
            raise web.HTTPBadRequest(text="steps is not a number of steps\n")
        if not isinstance(folder, str) or not Path(folder).is_absolute():
            raise web.HTTPBadRequest(text="folder is not an absolute path\n")
        if controller.runner.round.state is not State.RUNNING or training is None:
            return web.json_response({"problem": "nothing is being trained yet"})
        wanted = messages.Profile(
            round=controller.runner.round.number,
            first=profile_request.first_step(training["step"], training["step_seconds"]),
            steps=steps,
            folder=folder,
            name=time.strftime("%Y_%m_%d_%H_%M_%S"),
        )
        controller.runner.members.broadcast(wanted)
        tasks = [task.name for task in controller.runner.round.tasks if task.runs == "script"]
        return web.json_response({"name": wanted.name, "first": wanted.first, "tasks": tasks})

    acts = {"/stop": stop, "/stacks": stacks, "/profile": traces}
    return [web.post(path, for_owner(act)) for path, act in acts.items()]


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read() or b"{}")
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="the body is not a JSON object\n")
    return body


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if type(value) is not bool:  # "yes" was meant to be something
        raise web.HTTPBadRequest(text=f"{name} is neither true nor false\n")
    return value
