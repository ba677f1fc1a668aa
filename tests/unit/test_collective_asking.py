"""One worker asks another one for arrays: no collective."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from test_collective_sums import collectives

from tfrun.collective.errors import PeerGone


def asking_of(groups: list) -> list[Any]:
    return [group.asking for group in groups]


def test_who_is_asked_answers_whatever_it_does() -> None:
    with collectives(3) as groups:
        kept = [np.arange(3_000_000, dtype=np.float32), np.array(7.5), np.zeros((0,), np.int64)]
        asking = asking_of(groups)
        into = [np.empty_like(array) for array in kept]

        def later() -> None:
            asking[2].answer_with(lambda question: ({"of": question["what"]}, kept))

        timer = threading.Timer(0.1, later)  # who asks sooner waits
        timer.start()
        answer = asking[0].ask(2, {"what": "state"}, into)
        timer.join()
        assert answer["comes"] and answer["of"] == "state"
        for mine, theirs in zip(into, kept, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_what_is_another_thing_does_not_come() -> None:
    with collectives(2) as groups:
        first, second = asking_of(groups)
        second.answer_with(lambda _: ({"why": "it is ahead"}, []))
        answer = first.ask(1, {}, [np.empty(3)])
        assert answer == {"why": "it is ahead", "comes": False}


def test_who_has_gone_does_not_answer() -> None:
    with collectives(2) as groups:
        first, second = asking_of(groups)

        def broken(_: object) -> tuple:
            raise OSError("gone")

        second.answer_with(broken)
        with pytest.raises(PeerGone, match="rank 1 does not give what it is asked for"):
            first.ask(1, {}, [np.empty(3)])
