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
from tfrun.job.errors import UsageError
from tfrun.observe.monitor import view_of

SECONDS = 5.0


class NoAnswer(UsageError):
    """TFRUN-109: the job cannot be asked, and why."""

    def __init__(self, run_dir: Path, why: str) -> None:
        super().__init__(
            "TFRUN-109",
            f"the job in {str(run_dir)!r:.200} cannot be asked: {why}",
            expected="a job that runs",
            fix="tfrun status shows what is known of it",
        )


def ask(run_dir: Path, path: str, body: dict[str, Any] | None = None, *, seconds: float = SECONDS):
    """Returns a live job's answer, read as JSON; with a body it is a POST, without it a GET.

    Raises:
      NoAnswer: nothing runs there, or it is not reached from here, or refuses.
    """
    found = control_contact.read(run_dir)
    if found is None or found.is_gone:
        raise NoAnswer(run_dir, "no job runs there, or it is another user's")
    if found.url is None:
        raise NoAnswer(run_dir, f"it runs on {found.host}, which can be asked there only")
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
        raise NoAnswer(run_dir, f"it refuses: HTTP {error.code}") from None
    except (OSError, ValueError, TypeError, RecursionError, http.client.HTTPException) as error:
        # Also a damaged certificate, or something else that listens there by now.
        raise NoAnswer(run_dir, f"it does not answer: {error}") from None
    if not isinstance(values, dict):
        raise NoAnswer(run_dir, "what listens there is not a job")
    return values


def status(run_dir: Path) -> dict[str, Any]:
    """Returns the status of a job: its own word if it runs, else what its events tell."""
    try:
        return ask(run_dir, "/status")
    except NoAnswer:
        return view_of(run_dir).to_json(time.time(), runs=may_run(run_dir))


def may_run(run_dir: Path) -> bool:
    """Whether a job is there that is not known to have ended."""
    found = control_contact.read(run_dir)
    return found is not None and not found.is_gone
