"""A worker that leaves a round, and is in the next one before all that began with it is over."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tfrun.state import leave_round
from tfrun.state.snapshot import Place

SECONDS = 10.0


def test_who_looks_at_the_round_before_ends_nobody_in_the_next(monkeypatch: Any) -> None:
    looks, go_on, ended = threading.Event(), threading.Event(), list[str]()

    def keep_aside() -> bool:
        looks.set()
        assert go_on.wait(SECONDS)
        return True

    for name, value in (
        *(("LOOK_SECONDS", 0.01), ("REST_SECONDS", 0.0), ("_keep_aside", keep_aside)),
        *(("abort_collectives", lambda: None), ("_end", lambda: ended.append("it has ended"))),
    ):
        monkeypatch.setattr(leave_round, name, value)
    with leave_round.keeping_state():
        leave_round._leave()
        (looking,) = [t for t in threading.enumerate() if t.name == "tfrun leaving"]
        assert looks.wait(SECONDS)  # a large state, which takes long to be written
        leave_round.keeping()
        waiting = threading.Thread(
            target=leave_round.wait_for_round,
            args=(Place(call=0), 3, lambda: None),
            daemon=True,
        )
        waiting.start()
        while leave_round._stand.value != "out of its round, which it was told to leave":
            assert waiting.is_alive()
        leave_round._take_place()
        waiting.join(SECONDS)
        go_on.set()
        looking.join(SECONDS)
    assert not looking.is_alive() and not ended


@pytest.mark.parametrize("has_state", [True, False])
def test_who_has_nothing_to_keep_ends_at_once(monkeypatch: Any, has_state: bool) -> None:
    ended = list[str]()
    monkeypatch.setattr(leave_round, "_stand", leave_round.Stand.TRAINS)
    monkeypatch.setattr(leave_round, "_leave_at_rest", lambda _: None)
    monkeypatch.setattr(leave_round, "abort_collectives", lambda: None)
    monkeypatch.setattr(leave_round, "_end", lambda: ended.append("it has ended"))
    if has_state:
        with leave_round.keeping_state():
            leave_round._leave()
    else:
        leave_round._leave()
    assert bool(ended) != has_state
