"""Checkpoints whose content shows their step, so that a test notices one that mixes steps."""

from __future__ import annotations

import numpy as np

from tfrun.checkpoint.atomic_store import Store, Stored
from tfrun.checkpoint.remote_store import RemoteStore

SIZE = 1000  # numbers in an array


def write(store: Store | RemoteStore, step: int, size: int = SIZE) -> None:
    """Writes the checkpoint of a step."""
    arrays = {f"model/w{i}": np.full(size, step * 10 + i, np.float64) for i in range(3)}
    store.write(step, {"key": [0, 1, step], "history": {"loss": [step / 3]}}, arrays)


def assert_whole(stored: Stored | None, size: int = SIZE) -> int:
    """Returns the step of a checkpoint; fails if its parts are of different steps."""
    assert stored is not None
    step = stored.step
    assert stored.meta == {"key": [0, 1, step], "history": {"loss": [step / 3]}}
    assert sorted(stored.arrays) == ["model/w0", "model/w1", "model/w2"]
    for i in range(3):
        np.testing.assert_array_equal(stored.arrays[f"model/w{i}"], np.full(size, step * 10.0 + i))
    return step
