"""Machines of one job that have different versions of what computes."""

from __future__ import annotations

import json
from pathlib import Path

from control_port import Served, receive, with_server

from tfrun.control.protocol import messages
from tfrun.control.protocol.versions import difference, installed

NEW, OLD = {"TensorFlow": "2.21.0", "Keras": "3.15.1"}, {"TensorFlow": "2.20.0", "Keras": "3.15.1"}


def test_equal_ones_are_not_worth_a_word() -> None:
    assert difference("b", NEW, "a", NEW) == ""
    assert difference("b", {}, "a", NEW) == difference("b", NEW, "a", {}) == ""


def test_here_there_is_all_that_is_compared() -> None:
    found = installed()
    assert set(found) == {"Python", "TensorFlow", "Keras"}
    assert found["Python"].count(".") == 1  # workers of 3.11.7 and 3.11.9 understand each other


def test_a_machine_with_other_versions_is_named_when_it_joins(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = [await served.join("a", **NEW), await served.join("b", **OLD)]
        for socket in sockets:
            assert isinstance(await receive(socket), messages.Prepare)
        events = [json.loads(line) for line in served.log.read_text().splitlines()]
        (told,) = [event for event in events if event["event"] == "notice"]
        expected = {  # whichever came second
            "a": "a has TensorFlow 2.21.0 (b: 2.20.0): workers may fail",
            "b": "b has TensorFlow 2.20.0 (a: 2.21.0): workers may fail",
        }
        assert told["text"].startswith(expected[told["agent"]])

    with_server(tmp_path, test)


def test_what_is_newer_than_tested_is_told_once(tmp_path: Path) -> None:
    new = {"TensorFlow": "2.99.0", "Keras": "3.15.1"}

    async def test(served: Served) -> None:
        sockets = [await served.join("a", **new), await served.join("b", **new)]
        for socket in sockets:
            assert isinstance(await receive(socket), messages.Prepare)
        events = [json.loads(line) for line in served.log.read_text().splitlines()]
        (told,) = [event["text"] for event in events if event["event"] == "notice"]
        assert told.startswith("TFRUN-111: TensorFlow 2.99.0 is newer than those tfrun was tested")

    with_server(tmp_path, test)
