"""Who is connected: when one of them will have been silent for too long."""

from __future__ import annotations

from tfrun.control.members import Members


def test_the_first_that_will_be_silent():
    members = Members()
    assert members.until_silent(100.0, 5.0) == 5.0  # nobody is there
    a, b = (members.add(name, lambda message: None, 100.0) for name in "ab")
    a.heard, b.heard = 102.0, 101.5
    assert members.until_silent(102.25, 5.0) == 4.25
    assert members.silent(106.25, 5.0) == []
    assert members.silent(106.5, 5.0) == [b]
    members.remove(b)
    assert members.until_silent(106.5, 5.0) == 0.5
