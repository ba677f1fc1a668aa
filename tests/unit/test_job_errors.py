"""Coded errors: one line each, and whole after a journey between processes."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.job.errors import CODES, TfrunError, UsageError


def test_the_whole_sentence() -> None:
    error = UsageError("TFRUN-103", "0 is wrong", where="-n", expected="N", fix="Say how many")
    assert str(error) == "TFRUN-103: 0 is wrong (in -n). Expected N. Say how many."
    assert str(TfrunError("TFRUN-401", "it failed")) == "TFRUN-401: it failed."


@given(st.text(), st.text(), st.text(), st.text())
def test_an_error_is_one_line(what: str, where: str, expected: str, fix: str) -> None:
    text = str(TfrunError("TFRUN-105", what, where=where, expected=expected, fix=fix))
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("cls", [TfrunError, UsageError])
def test_an_error_survives_pickling(cls: type[TfrunError]) -> None:
    error = cls("TFRUN-103", "a", where="b", expected="c", fix="d")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.exit_code) == (cls, str(error), error.exit_code)


def test_a_code_that_is_not_in_the_table_cannot_be_raised() -> None:
    with pytest.raises(AssertionError):
        TfrunError("TFRUN-999", "what")


def test_the_exit_codes() -> None:
    assert (TfrunError.exit_code, UsageError.exit_code) == (1, 2)
    assert all(re.fullmatch(r"TFRUN-[1-9]\d\d", code) for code in CODES)
