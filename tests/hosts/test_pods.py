"""The rendered pods as containers: podman and runc run what `tfrun render kubernetes` writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import Lab
from machines import thorough
from podman import Podman, why_not
from test_pod_command import FIT

REASON = why_not()
pytestmark = [
    pytest.mark.skipif(bool(REASON), reason=f"no pods to test with: {REASON}"),
    thorough,
    pytest.mark.timeout(400),
]


def test_the_rendered_pods_train(tmp_path: Path) -> None:
    for name in ("lab", "pods"):
        (tmp_path / name).mkdir()
    lab = Lab(tmp_path / "lab", 2)
    try:
        lab.up()
        pods = Podman(lab, tmp_path / "pods", FIT)
        pods.render("--env", "PAUSE=0.2")
        pods.apply()
        try:
            pods.until_said("epoch 2", 120)
            for index in (0, 1):
                assert pods.is_healthy(index), pods.said(index)
                status = pods.inside(index, "cat", "/proc/1/status")
                assert "NoNewPrivs:\t1" in status and "CapEff:\t0000000000000000" in status
            pods.terminate()
            assert pods.codes(60) == [75, 75], (pods.said(0), pods.said(1))
            pods.delete()
            pods.render("--env", "PAUSE=0")  # with another token
            pods.apply()
            assert pods.codes(120) == [0, 0], (pods.said(0), pods.said(1))
            said = pods.said(0)
            assert "trained" in said and "epoch 0" not in said and "epoch 9" in said, said
        finally:
            pods.delete()
        assert (pods.shared / "t" / "events.jsonl").exists()
        left = [text for name in lab.names for text in lab.processes(name)]
        assert not left, left
    finally:
        lab.down()
