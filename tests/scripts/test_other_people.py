"""The reading of what scripts print: what is a number, what is a difference, what is a warning."""

from __future__ import annotations

import pytest
from other_people import (
    differences,
    disagreements,
    expected,
    new_warnings,
    numbers_of,
    warnings_in,
)


def test_numbers_are_read_with_their_names():
    printed = "Epoch 2, Loss: 0.25, Test accuracy = 1e-3\na/b.py:7: it says\n"
    printed += "1/4 - 0s - 3ms/step - loss: 8.1\nx=nan\n"
    assert [(n.name, n.value) for n in numbers_of(printed)][:2] == [
        ("Loss", 0.25),
        ("Test accuracy", 1e-3),
    ]
    assert [n.name for n in numbers_of(printed)] == ["Loss", "Test accuracy", "x"]


def test_a_difference_is_found():
    one = numbers_of("loss = 0.123456789\nrounded = 0.12")
    assert not differences(one, numbers_of("loss = 0.123456788\nrounded = 0.13"), 1e-6)
    assert differences(one, numbers_of("loss = 0.123457789\nrounded = 0.12"), 1e-6)
    assert differences(one, numbers_of("loss = 0.123456789\nrounded = 0.14"), 1e-6)
    assert differences(one, numbers_of("loss = nan\nrounded = 0.12"), 1e-6)
    assert differences(one, numbers_of("rounded = 0.12"), 1e-6)
    assert differences(numbers_of("steps = 4"), numbers_of("steps = 5"), 1e-6)


def test_a_worker_that_differs_is_found():
    chief = numbers_of("loss = 0.5\nloss = 0.25\nonly here = 1")
    assert not disagreements(chief, numbers_of("loss = 0.5\nloss = 0.25"))
    assert disagreements(chief, numbers_of("loss = 0.5\nloss = 0.29"))
    assert disagreements(chief, numbers_of("loss = 0.5"))


def test_a_warning_is_found():
    said = "a.py:1: UserWarning: x\nfine\nTFRUN-510: y\nvalidation error: 0.5"
    assert warnings_in(said, ()) == ["a.py:1: UserWarning: x", "TFRUN-510: y"]
    assert warnings_in(said, ("UserWarning: x", "^TFRUN-510")) == []
    assert warnings_in("tfrun: finished in 2.5 s · mean_absolute_error 0.8") == []


def test_a_warning_of_one_worker_is_none_of_many_unless_it_is_ours():
    assert new_warnings(["a.py:12: UserWarning: x"], ["a.py:13: UserWarning: x"]) == []
    assert new_warnings([], ["a.py:13: UserWarning: x"]) == ["a.py:13: UserWarning: x"]
    assert new_warnings(["TFRUN-510: y"], []) == ["TFRUN-510: y"]


@pytest.mark.parametrize(
    ("line", "tolerance", "same"),
    [
        ("# expects: equal", 1e-6, True),
        ("# expects: equal to 1e-4: it is float32 inside", 1e-4, True),
        ("# expects: near 0.3: each replica draws noise of its own", 0.3, False),
    ],
)
def test_what_a_script_expects(line, tolerance, same):
    rules = expected(f"# after: a tutorial\n{line}\nimport keras\n")
    assert (rules.tolerance, rules.same, rules.floatx) == (tolerance, same, "float64")


@pytest.mark.parametrize("line", ["# expects: near", "# expects: equal to 1e-4", "# expect: equal"])
def test_what_cannot_be_read_is_refused(line):
    with pytest.raises(ValueError, match="Expected"):
        expected(f"# after: a tutorial\n{line}\n")
