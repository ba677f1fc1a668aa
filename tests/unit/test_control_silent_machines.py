"""Who is lost when machines fall silent, and when it is the launcher whom nobody reaches."""

from __future__ import annotations

from tfrun.control.silent_machines import Silence, told_of
from tfrun.job.timeouts import Timeouts

TIMES = Timeouts(heartbeat_interval=1.0, heartbeat_timeout=5.0, launcher_timeout=30.0)


def test_one_of_two_is_lost():
    silence, lost = Silence().after(104.9, {"a": 100.0, "b": 104.5}, {"a", "b"}, TIMES)
    assert not lost
    silence, lost = silence.after(105.0, {"a": 100.0, "b": 104.5}, {"a", "b"}, TIMES)
    assert lost == {"a"} and silence.since is None


def test_all_at_once_are_waited_for_and_then_lost():
    heard = {"a": 100.0, "b": 100.9}
    silence, lost = Silence().after(105.0, heard, heard, TIMES)
    assert not lost
    assert silence.seconds(107.9) == 7.0
    silence, lost = silence.after(130.9, heard, heard, TIMES)
    assert not lost
    _, lost = silence.after(131.0, heard, heard, TIMES)
    assert lost == {"a"}  # a second after it has ended by itself


def test_the_others_come_back_a_moment_after_the_first():
    silence, _ = Silence().after(106.0, {"a": 100.0, "b": 100.5}, {"a", "b"}, TIMES)
    silence, lost = silence.after(107.0, {"a": 107.0, "b": 100.5}, {"a", "b"}, TIMES)
    assert not lost and silence.since is None
    silence, lost = silence.after(113.4, {"a": 113.0, "b": 100.5}, {"a", "b"}, TIMES)
    assert not lost  # the cut has taken 6.5 s
    _, lost = silence.after(113.6, {"a": 113.0, "b": 100.5}, {"a", "b"}, TIMES)
    assert lost == {"b"}


def test_workers_that_could_train_on_are_waited_for_although_a_spare_is_heard():
    """Else two would train, and save, at the same time."""
    heard = {"a": 100.0, "spare": 110.0}
    silence, lost = Silence().after(110.0, heard, {"a"}, TIMES)
    assert not lost and silence.since == 100.0
    _, lost = silence.after(131.0, {"a": 100.0, "spare": 131.0}, {"a"}, TIMES)
    assert lost == {"a"}


def test_without_a_round_all_count():
    silence, lost = Silence().after(106.0, {"a": 100.0, "b": 105.5}, {"gone"}, TIMES)
    assert lost == {"a"} and silence.since is None
    assert Silence().after(106.0, {}, {"gone"}, TIMES) == (Silence(), frozenset())


def test_what_a_person_is_told():
    said = told_of(5.2, ["a", "b"], TIMES)
    assert said.startswith("no machine has been heard from for 5 s: most likely this machine's")
    assert told_of(5.2, ["a"], TIMES).startswith("nothing has been heard from a for 5 s: it or")
