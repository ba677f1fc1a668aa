"""When a checkpoint is due."""

from __future__ import annotations

import pytest

from tfrun.checkpoint.when_due import Every, Moment, due, parse
from tfrun.job.errors import UsageError


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("500", Every(steps=500)),
        ("1", Every(steps=1)),
        ("600s", Every(seconds=600)),
        ("0.5s", Every(seconds=0.5)),
        ("10m", Every(seconds=600)),
        ("2h", Every(seconds=7200)),
        ("epoch", Every(epoch=True)),
        (" Epoch ", Every(epoch=True)),
    ],
)
def test_what_can_be_said(text, every):
    assert parse(text) == every


WRONG = ["", "0", "0s", "-5", "+5", "5.5", "5 s", "10d", "epochs", "s", "nan", "infs", "1e3"]


@pytest.mark.parametrize("text", [*WRONG, "\N{ARABIC-INDIC DIGIT FIVE}"])
def test_what_cannot(text):
    with pytest.raises(UsageError, match=r"TFRUN-105.*--checkpoint-every"):
        parse(text)


def at(step: int, now: float = 0.0) -> Moment:
    return Moment(now=now, step=step)


@pytest.mark.parametrize(
    ("text", "last", "now", "epoch_ended", "is_due"),
    [
        ("10", at(0), at(9), True, False),
        ("10", at(0), at(10), False, True),
        ("10", at(5), at(14), False, False),
        ("10", at(5), at(25), False, True),  # several steps in one execution
        ("10", at(20), at(12), False, True),  # the job went back
        ("5s", at(3, 100.0), at(4, 104.9), True, False),
        ("5s", at(3, 100.0), at(4, 105.0), False, True),
        ("5s", at(3, 100.0), at(3, 200.0), False, False),  # nothing new
        ("epoch", at(0), at(7), False, False),
        ("epoch", at(0), at(8), True, True),
        ("epoch", at(8), at(8), True, False),
    ],
)
def test_due(text, last, now, epoch_ended, is_due):
    assert due(parse(text), at=now, epoch_ended=epoch_ended, last=last) == is_due
