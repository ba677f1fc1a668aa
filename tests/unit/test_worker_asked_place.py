"""Whether a script has asked for its place in the job, by which it may go when that has changed."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import tensorflow as tf

from tfrun.worker import asked_place

ASKS = {
    "os.environ['RANK']": "os.environ['RANK']",
    "os.environ.get('WORLD_SIZE')": "os.environ['WORLD_SIZE']",
    "os.getenv('LOCAL_RANK')": "os.environ['LOCAL_RANK']",
    "json.loads(os.environ['TF_CONFIG'])": "os.environ['TF_CONFIG']",
    "dict(os.environ)['TFRUN_ROUND']": "os.environ['TFRUN_ROUND']",
    "TFConfigClusterResolver().task_id": "os.environ['TF_CONFIG']",
}
ASKS_NOT = (
    "os.environ['HOME']",
    "'TF_CONFIG' in os.environ",
    "os.environ.copy()",  # for another process, which has this place until it ends
    "subprocess.run(['true'], check=True)",
    "os.environ.get('RANKS')",
    "os.environ.update(OTHER='1')",
)


@pytest.fixture
def noted(monkeypatch):
    """What is noted while the test lasts."""
    found: list[str] = []
    monkeypatch.setattr(asked_place, "note_asked", found.append)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TFRUN_ROUND"):
        monkeypatch.setenv(name, "0")
    config = '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
    monkeypatch.setenv("TF_CONFIG", config)
    monkeypatch.setenv("OTHER", "0")
    before = type(os.environ)
    asked_place.watch()
    yield found
    os.environ.__class__ = before  # type: ignore[assignment]


def run(code: str, path: str) -> None:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver
    known = {"os": os, "json": json, "subprocess": subprocess, "TFConfigClusterResolver": resolver}
    names = {"__name__": "__main__", **known}
    exec(compile(code, path, "exec"), names)


@pytest.mark.parametrize("code", ASKS)
def test_a_script_that_asks_is_noted(noted, tmp_path, code):
    run(code, str(tmp_path / "train.py"))
    assert ASKS[code] in noted


@pytest.mark.parametrize("code", ASKS_NOT)
def test_one_that_does_not_is_not(noted, tmp_path, code):
    run(code, str(tmp_path / "train.py"))
    assert not noted


@pytest.mark.parametrize("code", ASKS)
def test_nor_what_a_library_asks_for_itself(noted, code):
    run(code, asked_place.__file__)
    assert not noted
