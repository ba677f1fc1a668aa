"""Asks a running job, from another terminal or machine that sees its run directory."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tfrun.job import control_contact
from tfrun.observe.monitor import view_of

SECONDS = 5.0


class NoAnswer(Exception):
    """The job cannot be asked; the text says why, as one clause."""


def ask(run_dir: Path, path: str, body: dict[str, Any] | None = None, *, seconds: float = SECONDS):
    """Returns a live job's answer, read as JSON.

    Args:
      run_dir: the run directory.
      path: what to ask for, "/status".
      body: what to send along: a POST; without it, a GET.
      seconds: how long to wait.

    Raises:
      NoAnswer: nothing runs there, or it is not reached from here, or refuses.
    """
    found = control_contact.read(run_dir)
    if found is None or found.is_gone:
        raise NoAnswer("no job runs there, or it is another user's")
    if found.url is None:
        raise NoAnswer(f"it runs on {found.host}, which can be asked there only")
    request = urllib.request.Request(
        found.url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {found.token}", "Content-Type": "application/json"},
    )
    try:
        # No proxy: the job is on this machine or near it.
        https = urllib.request.HTTPSHandler(
            context=control_contact.trusting(found.tls) if found.tls else None
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
        with opener.open(request, timeout=seconds) as answer:
            values = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise NoAnswer(f"it refuses: HTTP {error.code}") from None
    except (OSError, ValueError, TypeError, RecursionError, http.client.HTTPException) as error:
        # Also a damaged certificate, or something else that listens there by now.
        raise NoAnswer(f"it does not answer: {error}") from None
    if not isinstance(values, dict):
        raise NoAnswer("what listens there is no job")
    return values


def status(run_dir: Path, *, heat: bool = False) -> dict[str, Any]:
    """Returns the status of a job: its own word if it runs, else what its events tell.

    Args:
      run_dir: the run directory.
      heat: with the times of each worker over time.
    """
    try:
        return ask(run_dir, f"/status{'?heat=1' if heat else ''}")
    except NoAnswer:
        return view_of(run_dir).to_json(time.time(), runs=may_run(run_dir), heat=heat)


def may_run(run_dir: Path) -> bool:
    """Whether a job is there that is not known to have ended."""
    found = control_contact.read(run_dir)
    return found is not None and not found.is_gone
