"""Replicas of one worker take turns: one computes at a time, and nobody waits for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.collective.errors import Disagreement
from tfrun.engine.meeting import Meeting


@given(count=st.integers(1, 6), sums=st.integers(0, 4))
def test_all_come_to_each_sum_and_to_the_end(count, sums):
    computing: list[int] = []
    done, last = [0] * count, []
    meeting = Meeting(count, computing.append, computing.append)
    meeting.start()
    ended = set()
    while len(ended) < count:
        assert len(computing) == 1, "one computes at a time"
        replica = computing.pop()
        if done[replica] == sums:
            ended.add(replica)
            meeting.ends(replica)
            continue
        done[replica] += 1
        if meeting.hands_in(replica, f"sum {done[replica]}"):
            last.append(done[replica])
            assert done == [done[replica]] * count
            computing.append(replica)  # it goes on
    assert last == list(range(1, sums + 1)) and not computing


def test_the_first_turns_are_in_the_order_of_the_replicas():
    begun: list[int] = []
    meeting = Meeting(3, begun.append, lambda replica: None)
    meeting.start()
    assert not meeting.hands_in(0, "a") and not meeting.hands_in(1, "a")
    assert meeting.hands_in(2, "a")
    assert begun == [0, 1, 2]


def test_replicas_that_differ_are_told():
    meeting = Meeting(2, lambda replica: None, lambda replica: None)
    meeting.start()
    meeting.hands_in(0, "a")
    with pytest.raises(Disagreement, match="one is at b, one at a"):
        meeting.hands_in(1, "b")


def test_more_join_where_all_wait():
    begun, woken = [], []
    meeting = Meeting(2, begun.append, woken.append)
    meeting.start()
    assert not meeting.hands_in(0, "a") and meeting.hands_in(1, "a")
    meeting.all_wait()  # it could not be summed
    meeting.join(2)
    assert (begun, woken) == ([0, 1, 2], [])
    assert not meeting.hands_in(2, "a") and meeting.hands_in(3, "a")
    for replica in (3, 0, 1, 2):
        meeting.ends(replica)
    assert (begun, woken) == ([0, 1, 2, 3], [0, 1, 2])


def test_a_replica_that_ends_where_another_waits_is_told():
    meeting = Meeting(2, lambda replica: None, lambda replica: None)
    meeting.start()
    meeting.hands_in(0, "a")
    with pytest.raises(Disagreement, match="one is at a, one has ended"):
        meeting.ends(1)


def test_a_replica_that_hands_in_after_another_has_ended_is_told():
    meeting = Meeting(2, lambda replica: None, lambda replica: None)
    meeting.start()
    meeting.ends(0)
    with pytest.raises(Disagreement, match="one is at a, one has ended"):
        meeting.hands_in(1, "a")
