"""A worker that leaves a round, and is in the next one before all that began with it is over."""

from __future__ import annotations

import threading
import time
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


class Shown:
    """What a worker shows of itself."""

    def __init__(self, *, in_step: bool = False, traces: bool = False) -> None:
        self.is_tracing, self._in_step = traces, in_step

    def is_in_usual_step(self) -> bool:
        return self._in_step


@pytest.mark.parametrize(
    ("shown", "waited", "is_busy", "comes"),
    [
        (Shown(in_step=True), 500.0, False, True),  # as long as that is usual
        (Shown(), 8.0, False, True),  # in a callback that sleeps
        (Shown(), 10.0, False, False),
        (Shown(), 50.0, True, True),
        (Shown(), 70.0, True, False),
        (Shown(traces=True), 70.0, True, True),
        (Shown(traces=True), 70.0, False, False),
    ],
)
def test_who_is_busy_with_what_ends_is_waited_for(
    shown: Any, waited: float, is_busy: bool, comes: bool
) -> None:
    assert leave_round._comes(shown, waited, is_busy=is_busy) == comes


@pytest.mark.parametrize("stays", [True, False])
def test_who_cannot_stay_is_not_waited_for(monkeypatch: Any, stays: bool) -> None:
    said, ended = list[str](), threading.Event()
    monkeypatch.setattr(leave_round, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(leave_round, "REST_SECONDS", 0.03)
    monkeypatch.setattr(leave_round, "STAY_SECONDS", 0.1)
    monkeypatch.setattr(leave_round.progress, "BUSY", 2.0)  # nobody is
    monkeypatch.setattr(leave_round, "_may_stay", lambda: stays)
    monkeypatch.setattr(leave_round, "_keep_aside", lambda: True)
    monkeypatch.setattr(leave_round.progress, "own", Shown)
    monkeypatch.setattr(leave_round.channel, "emit", lambda report: said.append(report.kind))

    def end() -> None:
        ended.set()
        keeps.set()

    monkeypatch.setattr(leave_round, "_end", end)
    keeps, began = threading.Event(), time.monotonic()
    leave_round._leave_at_rest(keeps)
    assert ended.is_set() and set(said) == ({"comes"} if stays else set())
    assert time.monotonic() - began >= (0.1 if stays else 0.03)


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
