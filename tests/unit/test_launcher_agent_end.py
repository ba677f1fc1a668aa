"""An agent that ends before it has said anything: its last words are told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tfrun.agent.settings import AgentSettings
from tfrun.control.placement import Site
from tfrun.job.spec import JobSpec, Program
from tfrun.launcher.local.agent_process import AgentProcess
from tfrun.launcher.local.backend import LocalBackend


def test_what_an_agent_has_said_last_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "local.agent.log").write_text("of an earlier job\n")
    spec = JobSpec(program=Program(target="x.py"), run_dir=str(tmp_path), start_method="fresh")
    agent = AgentProcess("local", spec, 1)
    monkeypatch.setattr(AgentSettings, "to_line", lambda self: b'{"agent": "local"}\n')  # half
    agent.tell(AgentSettings(spec=spec))
    backend = LocalBackend(Site(agent="local", host="127.0.0.1", slots=1), agent)
    how = asyncio.run(asyncio.wait_for(backend.agent_ended(), 60)).how
    agent.close()
    assert how.startswith("exit code 1: tfrun.job.errors.TfrunError: TFRUN-302")
    assert "no settings of an agent: KeyError: 'spec'" in how and "earlier" not in how
