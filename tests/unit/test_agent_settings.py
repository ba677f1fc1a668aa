"""What an agent is told: one line there, and back as it was."""

from __future__ import annotations

import json

import pytest

from tfrun.agent.settings import AgentSettings
from tfrun.job.errors import TfrunError
from tfrun.job.spec import JobSpec, Program, WorkerRange

SPEC = JobSpec(
    program=Program(target="t.py", args=("--a", "b")),
    workers=WorkerRange(low=2, high=4),
    run_dir="/tmp/run",
    stated=("keep",),
)


@pytest.mark.parametrize(
    "stated",
    [
        {},
        {"token": "t", "agent": "n1", "workers": 2, "url": "http://127.0.0.1:1/agent"},
        {"tls": {"only": "PEM"}, "silence": 20.0, "attempt": 3, "directory": "/home/me"},
        {"copy_bytes": 7, "environment": {"A": "b"}, "agents": {"n1": 2}, "discovery": "/f"},
    ],
)
def test_what_is_told_arrives(stated: dict) -> None:
    told = AgentSettings(spec=SPEC, **stated)
    line = told.to_line()
    assert line.count(b"\n") == 1 and AgentSettings.from_line(line) == told
    assert json.loads(line).keys() == {"spec", *stated}  # no word of a token where it must not be


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "JSONDecodeError"),
        (b"[1]", "TypeError"),
        (b"{}", "KeyError: 'spec'"),
        (b'{"spec": {"program": {}}}', "KeyError: 'args'"),
        (AgentSettings(spec=SPEC).to_line().replace(b'"spec"', b'"speed": 1, "spec"'), "speed"),
    ],
)
def test_something_else_is_refused(line: bytes, says: str) -> None:
    with pytest.raises(TfrunError, match=says) as caught:
        AgentSettings.from_line(line)
    assert caught.value.code == "TFRUN-302"
