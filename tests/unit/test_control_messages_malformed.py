"""Malformed frames: each is refused with TFRUN-302, soon, and with nothing else."""

from __future__ import annotations

import json
import random
import time

import pytest

from tfrun.control.protocol import messages
from tfrun.control.protocol.wire import MAX_DEPTH, MAX_MESSAGE_BYTES, decode, encode
from tfrun.job.errors import TfrunError

HELLO = messages.Hello(agent="a", host="h", pid=7, version="0.1.0", programs={})
REPORT = messages.WorkerReport(round=0, task="worker:0", time=1.5, report={"kind": "done"})
EXITED = messages.WorkerExited(
    round=0, task="worker:0", time=1.5, code=0, out_of_memory=False, requested=False, tail="é"
)
VALID = [
    HELLO,
    REPORT,
    EXITED,
    messages.Prepared(round=0, ports=[2000, 2001], import_seconds=1.5),
    messages.StartRound(round=0, tasks=[{"task": "worker:0", "environment": {"A": "b"}}]),
    messages.Shutdown(),
]
FRAMES = [encode(message) for message in VALID]


def refusal(frame: str) -> str | None:
    """Returns the error's text, None when the frame was taken; anything else comes through."""
    try:
        decode(frame)
    except TfrunError as error:
        assert error.code == "TFRUN-302"
        assert len(str(error)) < 600
        return str(error)
    return None


def hello(**changes: object) -> str:
    return json.dumps({**json.loads(FRAMES[0]), **changes})


def nested(levels: int) -> str:
    """A report that is a valid message but for its depth: `levels` lists in the report."""
    frame = (
        '{"v":1,"kind":"worker_report","round":0,"task":"t","time":1,"port":0,"report":{"x":%s}}'
    )
    return frame % ("[" * levels + "]" * levels)


MALFORMED = {
    "nothing": "",
    "no JSON": "hello",
    "cut": FRAMES[0][:-1],
    "two": FRAMES[0] * 2,
    "byte order mark": "\ufeff" + FRAMES[0],
    "a list": "[]",
    "a number": "1",
    "null": "null",
    "a string": '"hello"',
    "no version": '{"kind":"shutdown"}',
    "no kind": '{"v":1}',
    "version 0": hello(v=0),
    "version 2": hello(v=2),
    "version as text": hello(v="1"),
    "version as float": hello(v=1.0),
    "version as bool": hello(v=True),
    "version null": hello(v=None),
    "unknown kind": hello(kind="goodbye"),
    "empty kind": hello(kind=""),
    "base's kind": hello(kind="message"),
    "kind as list": hello(kind=["hello"]),
    "kind as object": hello(kind={}),
    "kind null": hello(kind=None),
    "another kind's fields": hello(kind="prepared"),
    "a field more": hello(more=1),
    "a field less": '{"v":1,"kind":"hello","agent":"a","host":"h","pid":7,"version":"0"}',
    "text as number": hello(agent=7),
    "text as null": hello(agent=None),
    "text as list": hello(agent=["a"]),
    "number as text": hello(pid="7"),
    "number as float": hello(pid=7.5),
    "number as bool": hello(pid=True),
    "NaN": FRAMES[1].replace("1.5", "NaN"),
    "Infinity": FRAMES[1].replace("1.5", "Infinity"),
    "minus Infinity": FRAMES[1].replace("1.5", "-Infinity"),
    "overflow": FRAMES[1].replace("1.5", "1e999"),
    "NaN within": FRAMES[1].replace('"done"', "NaN"),
    "65 bits": hello(pid=2**63),
    "65 bits, negative": hello(pid=-(2**63) - 1),
    "4000 digits": FRAMES[0].replace("7", "7" * 4000),
    "a million digits": FRAMES[0].replace("7", "7" * 1_000_000),
    "a million digits, float": FRAMES[1].replace("1.5", "1" * 1_000_000 + ".5e3"),
    "lone surrogate": hello(agent="\ud800"),
    "lone surrogate as key": hello(**{"\udfff": 1}),
    "lone surrogate within": FRAMES[1].replace("done", "\\udcff"),
    "bare surrogate": FRAMES[0].replace('"a"', '"\udcff"'),
    "control character": FRAMES[0].replace('"a"', '"\n"'),
    "report as list": FRAMES[1].replace('{"kind":"done"}', "[]"),
    "ports as text": FRAMES[3].replace("2000", '"2000"'),
    "ports as bool": FRAMES[3].replace("2000", "true"),
    "ports as object": FRAMES[3].replace("[2000,2001]", "{}"),
    "one level too deep": nested(MAX_DEPTH - 1),
    "a thousand deep": nested(1_000),
    "deep lists": "[" * 100_000,
    "deep lists, closed": nested(100_000),
    "deep objects": '{"a":' * 100_000,
    "as deep as a frame can be": "[" * MAX_MESSAGE_BYTES,
    "the largest string": '"' + "x" * (MAX_MESSAGE_BYTES - 2) + '"',
}


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_frame_is_refused_soon(frame: str) -> None:
    start = time.process_time()
    assert refusal(frame)
    assert time.process_time() - start < 2.0  # typically well below 0.05 s


def test_what_is_deep_but_not_too_deep_is_taken() -> None:
    assert refusal(nested(MAX_DEPTH - 2)) is None


def test_ten_thousand_random_mutations_are_refused_or_are_messages() -> None:
    """Bytes changed, dropped, doubled, moved between frames; some of them stay valid."""
    chance = random.Random(20)
    alphabet = '{}[]":,0123456789eE+-.\\u truefalsn\x00\x7féѐ\ud800\U0001f600'
    refused = 0
    for _ in range(10_000):
        frame = list(chance.choice(FRAMES))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(frame) + 1)
            match chance.randrange(4):
                case 0:
                    frame[at:at] = chance.choices(alphabet, k=chance.randint(1, 3))
                case 1:
                    del frame[at : at + chance.randint(1, 8)]
                case 2:
                    frame[at : at + 1] = chance.choice(alphabet)
                case 3:
                    other = chance.choice(FRAMES)
                    cut = chance.randrange(len(other))
                    frame[at:at] = other[cut : cut + chance.randint(1, 20)]
        refused += refusal("".join(frame)) is not None
    assert refused > 8_000


def test_ten_thousand_structural_mutations_are_refused_or_are_messages() -> None:
    """Good JSON with a value replaced by one of another type, or fields dropped or added."""
    chance = random.Random(21)
    values = (None, True, False, 0, -1, 1.5, 10**25, "", "x", "\udc80", [], [[]], {}, {"a": 1})
    refused = 0
    for _ in range(10_000):
        fields = json.loads(chance.choice(FRAMES))
        match chance.randrange(3):
            case 0:
                fields[chance.choice([*fields])] = chance.choice(values)
            case 1:
                del fields[chance.choice([*fields])]
            case 2:
                fields[chance.choice(["x", "round", "task", "v2"])] = chance.choice(values)
        refused += refusal(json.dumps(fields)) is not None
    assert refused > 7_000
