"""All waiting times, and the order that they have to be in."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tfrun.job.errors import UsageError
from tfrun.job.timeouts import Timeouts

NAMES = [field.name for field in dataclasses.fields(Timeouts)]


def test_the_defaults_are_in_order() -> None:
    assert Timeouts() == Timeouts()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
def test_each_time_is_positive_and_finite(name: str, value: float) -> None:
    if (name, value) == ("rejoin_timeout", 0):
        assert Timeouts(rejoin_timeout=0).rejoin_timeout == 0  # the job goes on at once
        return
    with pytest.raises(UsageError) as caught:
        Timeouts(**{name: value})
    assert caught.value.code == "TFRUN-108"
    assert ({"preempt_grace": "grace"}.get(name, name)) in str(caught.value).replace("-", "_")


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("heartbeat_interval", "heartbeat_timeout"),
        ("heartbeat_timeout", "join_timeout"),
        ("heartbeat_timeout", "launcher_timeout"),
        ("stop_grace", "join_timeout"),
        ("interrupt_grace", "join_timeout"),
    ],
)
@pytest.mark.parametrize("excess", [0.0, 0.5])
def test_the_order_is_checked(smaller: str, larger: str, excess: float) -> None:
    limit = getattr(Timeouts(), larger)
    with pytest.raises(UsageError) as caught:
        # Nothing else is out of order then.
        Timeouts(**{"launcher_timeout": 1000.0, larger: limit, smaller: limit + excess})
    assert caught.value.code == "TFRUN-108"
    assert larger in str(caught.value).replace("-", "_")
    assert f"more than the {limit + excess:g} s" in str(caught.value)
