"""Gradients in half the bytes: against numpy, over real sockets and through shared memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_collective_sums import at_once, collectives

from tfrun.collective import shared_memory_sums as shared_module
from tfrun.collective.collective import Collective
from tfrun.collective.compress import FORMATS, Residuals
from tfrun.collective.counts import Gradients
from tfrun.collective.errors import Disagreement

WORLDS = [2, 3, 5, (2, 2), (1, 3, 2)]  # connected, or machines of so many workers


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_module, "PIECE_BYTES", 1 << 12)
        yield {
            (which, way): stack.enter_context(
                collectives(
                    which if isinstance(which, int) else sum(which),
                    machines=() if isinstance(which, int) else which,
                    folder=str(tmp_path_factory.mktemp("memory")),
                    compress=way,
                    small_bytes=0,
                )
            )
            for which in WORLDS
            for way in FORMATS
        }


def summed(groups: list[Collective], values: list[Any], name: str, version: int) -> list[Any]:
    """What each worker gets for its gradients."""
    count = len(values[0])
    gradients = Gradients(which=range(count), name=name, version=version)
    calls = [
        lambda g=g, v=v: g.all_reduce(v, gradients) for g, v in zip(groups, values, strict=True)
    ]
    return at_once(calls)


def kept(group: Collective, name: str, version: int) -> Any:
    """What is rounded off of a worker's gradients after `version` sums."""
    residuals = group._residuals
    if residuals is None or name not in residuals._open:
        return 0.0
    return residuals._open[name][1][version % 2].astype(np.float64)


@settings(max_examples=40)
@given(
    which=st.sampled_from(WORLDS),
    way=st.sampled_from(sorted(FORMATS)),
    size=st.integers(1, 5000),
    steps=st.integers(1, 6),
    scale=st.sampled_from([1e-6, 1.0, 1e3]),
    seed=st.integers(0, 1000),
)
def test_what_is_rounded_off_comes_later(
    worlds: dict, which: Any, way: str, size: int, steps: int, scale: float, seed: int
) -> None:
    groups = worlds[which, way]
    random = np.random.default_rng(seed)
    name = f"{size}x{seed}x{steps}x{scale:g}".replace("-", "m").replace("+", "p")
    exact = np.zeros(size)
    applied = np.zeros(size)
    largest = np.zeros(size)
    for step in range(steps):
        mine = [random.standard_normal(size).astype(np.float32) * scale for _ in groups]
        mine = [gradient.astype(np.float32) for gradient in mine]
        found = summed(groups, [[gradient] for gradient in mine], name, step)
        assert len({worker[0].tobytes() for worker in found}) == 1
        assert found[0][0].dtype == np.float32
        exact += np.sum(mine, axis=0, dtype=np.float64)
        applied += found[0][0]
        largest = np.maximum(largest, np.sum(np.abs(mine), axis=0))
    rest = sum(kept(group, name, steps)[:size] if _sends(group) else 0 for group in groups)
    # But for the rounding of float32 itself, all is there: applied, or kept for the next step.
    tolerance = 1e-6 * steps * len(groups) * (largest.max() + scale)
    assert np.abs(applied + rest - exact).max() <= tolerance
    assert np.abs(rest).max() <= 2 * len(groups) * largest.max() / 128 + 1e-7


def _sends(group: Collective) -> bool:
    return group._shared is None or group._shared.crosses


def test_gradients_alone_are_rounded_and_only_what_is_large(worlds: dict) -> None:
    groups = worlds[3, "bf16"]
    odd = np.full(5000, 1 + 2.0**-20, np.float32)
    gradients = Gradients(which=[1], name="some", version=0)
    found = at_once([lambda g=g: g.all_reduce([odd, odd], gradients) for g in groups])
    for metric, gradient in found:
        assert (metric == np.float32(3 * odd[0])).all() and (gradient == 3.0).all()
    done = [group.counts.compressed for group in groups]
    for group in groups:
        group.small_bytes = 1 << 20
    assert (summed(groups, [[odd]] * 3, "small", 0)[0][0] == np.float32(3 * odd[0])).all()
    assert [group.counts.compressed for group in groups] == done
    for group in groups:
        group.small_bytes = 0


@pytest.mark.parametrize(("which", "share"), [(2, 0.5), (3, 0.5), ((2, 2), 0.5)], ids=str)
def test_half_the_bytes_are_sent(worlds: dict, which: Any, share: float) -> None:
    groups = worlds[which, "bf16"]
    mine = [np.ones(200_000, np.float32)]

    def sent(compressed: bool) -> int:
        gradients = Gradients(which=[0] if compressed else [], name="bytes", version=0)
        before = [group.sent_bytes for group in groups]
        at_once([lambda g=g: g.all_reduce(mine, gradients) for g in groups])
        return sum(g.sent_bytes - b for g, b in zip(groups, before, strict=True))

    whole, half = sent(False), sent(True)
    members = len(groups) if isinstance(which, int) else len(which)
    assert whole >= 2 * (members - 1) * mine[0].nbytes
    assert share * whole <= half < share * 1.05 * whole


def test_what_is_not_finite_stays_and_what_is_too_large_comes_later(worlds: dict) -> None:
    groups = worlds[2, "fp16"]
    large = np.float32(60_000)
    mine = [np.array([np.nan, np.inf, -np.inf, large, -large, 1], np.float32)] * 2
    zeros = [np.zeros(6, np.float32)] * 2
    first = summed(groups, [[m] for m in mine], "large", 0)[0][0]
    assert np.isnan(first[0]) and first[1] == np.inf and first[2] == -np.inf
    assert first[3:].tolist() == [65504, -65504, 2]
    second = summed(groups, [[z] for z in zeros], "large", 1)[0][0]
    assert second[:3].tolist() == [0, 0, 0]  # nothing is known of what was not finite
    assert (first[3:5] + second[3:5]).tolist() == [120_000, -120_000]


def test_successors_go_on_from_the_same_step(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    steps = [[random.standard_normal(1000).astype(np.float32) for _ in range(2)] for _ in range(5)]

    def run(folder: Path, rounds: list[tuple[int, int]]) -> list[bytes]:
        """What each step applied; a round is the first of its steps and the one after its last."""
        folder.mkdir(exist_ok=True)
        found = {}
        for first, end in rounds:
            with collectives(2, compress="bf16", residuals=folder, small_bytes=0) as groups:
                for step in range(first, end):
                    values = [[gradient] for gradient in steps[step]]
                    found[step] = summed(groups, values, "g", step)[0][0].tobytes()
        return [found[step] for step in sorted(found)]

    whole = run(tmp_path / "a", [(0, 5)])
    # The second round loses its last step, which the third does again.
    assert run(tmp_path / "b", [(0, 2), (2, 4), (3, 5)]) == whole
    # Nothing is kept of a step that far back: as after a checkpoint from the disk.
    assert run(tmp_path / "a", [(1, 5)]) == run(tmp_path / "c", [(1, 5)]) != whole[1:]
    assert run(tmp_path / "a", [(0, 5)]) == whole


def test_no_room_and_another_model(tmp_path: Path) -> None:
    dtype = FORMATS["bf16"]
    nowhere = Residuals(dtype, tmp_path / "missing", 0)
    nowhere.begin("g", 0, 10).after[:] = 7
    assert (nowhere.begin("g", 1, 10).before == 7).all()
    first = Residuals(dtype, tmp_path, 0)
    first.begin("g", 0, 10).after[:] = 7
    assert Residuals(dtype, tmp_path, 0).begin("g", 1, 11).before is None
    assert Residuals(dtype, tmp_path, 1).begin("g", 1, 11).before is None


def test_workers_that_disagree_are_told_so() -> None:
    told = "rank 0 wants gradients to travel as they are, and rank 1 wants as bf16"
    with pytest.raises(Disagreement, match=told), collectives(2, compress=["", "bf16"]):
        pass
    told = "rank 0 wants sums to count as small .* 9, and rank 1 wants 0"
    with pytest.raises(Disagreement, match=told), collectives(2, small_bytes=[9, 0]):
        pass
