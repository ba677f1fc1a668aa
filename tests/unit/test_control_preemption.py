"""What signals to the launcher mean."""

from __future__ import annotations

import pytest

from tfrun.control.preemption import ONE_REQUEST_SECONDS, Preemption
from tfrun.control.rounds.events import Interrupt, Preempt


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_a_person_ends_the_job_at_once(name: str) -> None:
    event, _ = Preemption().signalled(name, 1.0)
    assert event == Interrupt(signal=name)


def test_the_first_sigterm_wants_the_machine_and_a_second_one_insists() -> None:
    event, asked = Preemption().signalled("SIGTERM", 1.0)
    assert event == Preempt()
    again, asked = asked.signalled("SIGTERM", 1.0 + ONE_REQUEST_SECONDS / 2)
    assert again is None  # one request, that came as two signals
    event, _ = asked.signalled("SIGTERM", 1.0 + ONE_REQUEST_SECONDS)
    assert event == Interrupt(signal="SIGTERM")
