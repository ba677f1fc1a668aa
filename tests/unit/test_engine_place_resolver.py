"""The cluster of a process that is to take another's place."""

from __future__ import annotations

import pytest
from tensorflow.python.eager import context

from tfrun.engine import place_resolver

TWO = '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}'


def test_who_rehearses_computes_on_its_own_gpus(
    work_under, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", TWO)
    monkeypatch.setattr(context, "num_gpus", lambda: 1)
    work_under(rehearses=True)
    found = place_resolver.resolver()
    assert found.cluster_spec().as_dict() == {"worker": ["b:2"]}
    # On these TensorFlow places the strategy; where a resolver names none, on the CPU.
    assert found.num_accelerators().get("GPU", 0) == 1
