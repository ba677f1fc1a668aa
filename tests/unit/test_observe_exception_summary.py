"""What is shown of an exception: real ones, as TensorFlow 2.21 and Keras 3.15 have raised them.

failures.json has what a worker reports of each, made by a script with one mistake after the other.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure
from tfrun.job.reports import Error
from tfrun.observe.exception_summary import LINES, WIDTH, essence, frames
from tfrun.observe.failure_report import detail_of

FOUND = json.loads(Path(__file__).with_name("failures.json").read_text())
REPORTS = {name: Error(**report) for name, report in FOUND.items()}
SAID = {
    "input shape": [
        "ValueError: Exception encountered when calling Sequential.call().",
        "Input 0 with name 'None' of layer 'dense' is incompatible with the layer: expected axis "
        "-1 of input shape to have value 4, but received input with shape (None, 5)",
    ],
    "labels range": [
        "InvalidArgumentError: Received a label value of 7 which is outside the valid range of "
        "[0, 3).  Label values: 7 7 7 7 7 7 7 7",
        "in node compile_loss/sparse_categorical_crossentropy/SparseSoftmaxCrossEntropyWithLogits/"
        "SparseSoftmaxCrossEntropyWithLogits, /home/me/train.py, line 25",
    ],
    "wrong loss": ["ValueError: Could not interpret loss identifier: mean_squared_eror"],
    "layer argument": [
        "ValueError: Unrecognized keyword arguments passed to Dense: {'actvation': 'relu'}"
    ],
    "call argument": ["TypeError: got an unexpected keyword argument 'traning'"],
    "load nothing": [
        "ValueError: File not found: filepath=nothing.keras. Please ensure the file is an "
        "accessible `.keras` zip file."
    ],
    "graph": [
        "InvalidArgumentError: not a number here : Tensor had NaN values",
        "in node m_1_1/CheckNumerics, /home/me/train.py, line 53",
    ],
    "reshape": [
        "InvalidArgumentError: Input to reshape is a tensor with 6 values, but the requested shape "
        "has 4"
    ],
    "py_function": [
        "UnknownError: Error in user-defined function passed to MapDataset:73 transformation with "
        "iterator: Iterator::Root::Prefetch::Map: ZeroDivisionError: division by zero"
    ],
    "generator": ["OSError: the disk is gone"],
    "chained": [
        "ValueError: no such setting: key",
        "known: a, b",
        "caused by KeyError: 'key'",
    ],
    "empty": ["AssertionError: (without a message) in: def _(): assert False"],
    "empty type": ["RuntimeError: (without a message) in: def _(): raise RuntimeError"],
    "notes": ["ValueError: bad", "while reading a.csv"],
    "syntax": [
        "SyntaxError: '(' was never closed",
        '  File "/home/me/train.py", line 1',
        "    x = (1,",
        "        ^",
    ],
    "indent": [
        "IndentationError: expected an indented block after function definition on line 1",
        '  File "/home/me/train.py", line 2',
        "    x = 1",
        "    ^",
    ],
    "group": [
        "ExceptionGroup: two failed (2 sub-exceptions)",
        "  - ValueError: first",
        "  - FileNotFoundError: [Errno 2] No such file: 'a.csv'",
    ],
    "bold": ["InvalidArgumentError: Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]"],
}


@pytest.mark.parametrize("name", SAID)
def test_the_lines_that_matter(name: str) -> None:
    assert essence(REPORTS[name]) == SAID[name]


def test_what_is_wrong_in_a_file_comes_with_why() -> None:
    first, second = essence(REPORTS["deserialize"])
    assert first.startswith("TypeError: <class 'keras.src.models.sequential.Sequential'> could not")
    assert second.startswith("while handling TypeError: Could not locate class 'Mine'.")
    first, second, *_ = essence(REPORTS["weights shape"])
    assert "objects could not be loaded" in first
    assert second.startswith("The shape of the target variable and the shape of the target value")


@pytest.mark.parametrize("name", REPORTS)
def test_it_is_short_and_no_argument_list(name: str) -> None:
    lines = essence(REPORTS[name])
    assert lines and len(lines) <= LINES + 4 and max(map(len, lines)) <= WIDTH + 1
    assert "\x1b" not in "".join(lines)
    for nothing in ("• ", "```", "[[{{node", "[Op:", "{{function_node"):
        assert nothing not in "".join(lines)


@pytest.mark.parametrize("name", REPORTS)
def test_above_it_stand_the_calls(name: str) -> None:
    """The traceback's own end, which the lines that matter take the place of, is not among them."""
    above = frames(REPORTS[name])
    said = essence(REPORTS[name])[0].partition(": ")[2]
    assert not any(line.endswith(said) for line in above[-3:])
    assert any("/home/me/train.py" in line for line in above) or name in ("syntax", "indent")
    assert len(above) < len(REPORTS[name].traceback.rstrip().splitlines())


def test_the_report_shows_both_or_the_essence_alone() -> None:
    failure = Failure(
        task="worker:1", time=0, status=ExitStatus(code=1), error=REPORTS["input shape"]
    )
    assert detail_of(failure, 0) == SAID["input shape"]
    shown = detail_of(failure, 12)
    assert shown[-2:] == SAID["input shape"] and any("train.py" in line for line in shown)
    assert detail_of(failure, 3)[0] == "…"


def test_a_process_that_raised_nothing_shows_the_end_of_its_log() -> None:
    failure = Failure(task="worker:1", time=0, status=ExitStatus(code=-11), tail="a\nb\nc\n")
    assert detail_of(failure, 2) == ["…", "b", "c"]
    assert detail_of(failure, 12) == ["a", "b", "c"]
