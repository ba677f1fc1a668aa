"""Control messages: what is sent is what arrives, whatever a worker has reported."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.control.protocol import wire
from tfrun.control.protocol.messages import RoundMessage, WorkerReport
from tfrun.control.protocol.wire import Message, decode, encode

KINDS = [*Message.__subclasses__(), *RoundMessage.__subclasses__()]
KINDS.remove(RoundMessage)

# What arrives as it was sent: JSON as all languages read it.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
STRICT = st.recursive(
    st.none() | st.booleans() | INT | FLOAT | TEXT,
    lambda child: st.lists(child, max_size=4) | st.dictionaries(TEXT, child, max_size=4),
    max_leaves=8,
)
# What Python's json module takes, and a script may therefore report.
LOOSE = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(),
    lambda child: (
        st.lists(child, max_size=4)
        | st.dictionaries(st.text(st.characters(), max_size=5), child, max_size=4)
        | st.tuples(child, child)
    ),
    max_leaves=8,
)
BY_TYPE = {
    "str": TEXT,
    "int": INT,
    "float": FLOAT | INT,
    "bool": st.booleans(),
    "list": st.lists(STRICT, max_size=4),
    "list[int]": st.lists(INT, max_size=4),
    "list[str]": st.lists(TEXT, max_size=4),
    "dict": st.dictionaries(TEXT, STRICT, max_size=4),
}


def instances(kind: type[Message]) -> st.SearchStrategy[Message]:
    fields = dataclasses.fields(kind)
    return st.builds(kind, **{field.name: BY_TYPE[str(field.type)] for field in fields})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@given(data=st.data())
def test_each_kind_arrives_as_it_was_sent(kind: type[Message], data: st.DataObject) -> None:
    message = data.draw(instances(kind))
    frame = encode(message)
    assert decode(frame) == message
    assert json.loads(frame)["v"] == wire.PROTOCOL_VERSION


def test_the_kinds_have_names_of_their_own() -> None:
    names = [kind.kind for kind in KINDS]
    assert len(set(names)) == len(names) >= 14
    assert all(names)


def report(value: object) -> WorkerReport:
    return WorkerReport(round=0, task="worker:0", time=1.0, report={"value": value})


@given(LOOSE)
def test_whatever_a_worker_reports_the_frame_is_a_good_one(value: object) -> None:
    """A job must not die because a loss is NaN or a file's name is no UTF-8."""
    first = decode(encode(report(value)))
    assert decode(encode(first)) == first


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        ([1.5, math.nan], [1.5, "NaN"]),
        (2**63, "0x8000000000000000"),
        (-(10**6000), hex(-(10**6000))),
        ("caf\udce9", "caf\\udce9"),
        ({"\ud800": 1}, {"\\ud800": 1}),
        ("\U0001f600", "\U0001f600"),
        ((1, 2), [1, 2]),
        (True, True),
    ],
    ids=lambda value: f"{value!r:.20}" if not isinstance(value, int) else "int",
)
def test_what_json_cannot_hold_becomes_text(value: object, arrives: object) -> None:
    message = decode(encode(report(value)))
    assert isinstance(message, WorkerReport)
    assert message.report == {"value": arrives}


def test_what_is_nested_too_deep_is_cut() -> None:
    deep: object = "bottom"
    for _ in range(500):
        deep = [deep]
    frame = encode(report(deep))
    assert "\\u2026" in frame
    assert "bottom" not in frame
    decode(frame)
