from __future__ import annotations

import numpy as np

from tfrun.engine.sync_check import checksum, first_difference


def test_checksum_sees_every_bit() -> None:
    value = np.zeros((3, 4), np.float32)
    other = value.copy()
    other[2, 3] = np.float32(1e-45)
    assert checksum(value) == checksum(value.copy())
    assert len({checksum(v) for v in (value, other, value.T, value.astype("f8"), -value)}) == 5


def test_checksum_of_a_view_and_of_not_a_number() -> None:
    value = np.arange(12.0).reshape(3, 4)
    assert checksum(value[:, ::2]) == checksum(value[:, ::2].copy())
    assert checksum(np.array(np.nan)) == checksum(np.array(np.nan))
    assert -(2**63) <= checksum(value) < 2**63


def test_first_difference() -> None:
    names = ["a", "b", "c"]
    same = np.array([[1, 2, 3]] * 4)
    assert first_difference(names, same) is None
    same[2, 1] = same[3, 1] = same[1, 2] = 0
    assert first_difference(names, same) == ("b", (2, 3))
