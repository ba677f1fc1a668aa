"""Who is connected: when one of them will have been silent for too long, and who is there again."""

from __future__ import annotations

from tfrun.control.machines import Away, Members


def test_the_first_that_will_be_silent():
    members = Members()
    assert members.until_silent(100.0, 5.0) == 5.0  # nobody is there
    a, b = (members.add(name, lambda message: None, 100.0) for name in "ab")
    a.heard, b.heard = 102.0, 101.5
    assert members.until_silent(102.25, 5.0) == 4.25
    assert members.until_silent(106.5, 5.0) == 0.5  # the other has been silent already
    assert members.heard() == {"a": 102.0, "b": 101.5}
    members.remove(b)
    assert members.until_silent(106.5, 5.0) == 0.5


def test_one_that_is_there_again_has_to_get_ready_anew():
    members = Members()
    a = members.add("a", lambda message: None, 100.0)
    a.ready = 101.0
    members.remove(a)
    assert not members.is_here(a)
    members.away["a"] = Away(member=a, round=3, holds=(0, 7))
    members.back(a, 110.0)
    assert members.is_here(a) and not members.away
    (other,) = members.standing_by(set(), 111.0).values()
    assert (other.here, other.ready, other.losses) == (1.0, None, 1)
