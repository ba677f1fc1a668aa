"""A step that a peer's end has cut off is made again, as often as it takes."""

from __future__ import annotations

import pytest

from tfrun.state.staying_session import MadeAgain


def test_a_step_is_made_again_until_it_is_made() -> None:
    called: list[str] = []

    def step(iterator: str) -> str:
        called.append(iterator)
        if len(called) < 3:
            raise OSError(f"a peer has gone from {iterator}")
        return f"logs of {iterator}"

    def again(error: Exception) -> str:
        return f"{error}, and again"

    assert MadeAgain(step, again)("a") == f"logs of {called[-1]}"
    assert [one.count("again") for one in called] == [0, 1, 2]


def test_what_cannot_be_made_again_fails_as_it_did() -> None:
    def step(iterator: str) -> None:
        raise OSError("no peer's end")

    def again(error: Exception) -> str:
        raise error

    with pytest.raises(OSError, match="no peer's end"):
        MadeAgain(step, again)("a")
