"""A cell shows whole lines without control codes, and a progress bar as it moves."""

from __future__ import annotations

import contextlib
import io
import os

import pytest

from tfrun.notebook import cell_output
from tfrun.notebook.cell_output import Cell

BAR = "\x1b[1m1/2\x1b[0m \x1b[32m━━\x1b[0m loss: 2\x08\x08\x08\r\x1b[1m2/2\x1b[0m ━━━━ loss: 1\n"


def shown(*pieces: bytes, redraw: bool = False) -> str:
    stream = io.StringIO()
    cell = Cell(stream, redraw=redraw)
    for piece in pieces:
        cell.feed(piece)
    cell.close()
    return stream.getvalue()


def test_lines_come_whole_and_plain():
    assert shown(b"one\ntw", b"o\n") == "one\ntwo\n"
    assert shown(BAR.encode()) == "2/2 ━━━━ loss: 1\n"
    assert shown(b"\x1b]0;title\x07a\x1b[2Kb\x1b[?25l\n") == "ab\n"
    assert shown(b"a\tb\x00\n\nc") == "a\tb\n\nc\n"


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_pieces_may_be_cut_anywhere(size):
    data = BAR.encode()
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    assert shown(*pieces) == "2/2 ━━━━ loss: 1\n"


def test_a_cell_redraws_its_line(monkeypatch):
    monkeypatch.setattr(cell_output, "REDRAW_SECONDS", 0.0)
    text = shown(b"\x1b[1m1/20 loss: 1.25", b"\x08\x08\r2/20", b"\r20/20\n", redraw=True)
    assert text == "1/20 loss: 1.25\r2/20           \r20/20          \n" or text.startswith(
        "1/20 loss: 1.25\r2/20           \r20/20"
    )
    assert "\x1b" not in text and "\x08" not in text


def test_a_line_that_is_drawn_is_not_drawn_twice(monkeypatch):
    monkeypatch.setattr(cell_output, "REDRAW_SECONDS", 0.0)
    assert shown(b"1/2", b"\n", redraw=True) == "1/2\n"


def test_half_an_escape_sequence_waits(monkeypatch):
    monkeypatch.setattr(cell_output, "REDRAW_SECONDS", 0.0)
    assert shown(b"a\x1b[1", b"mb\n", redraw=True) == "a\rab\n"


def test_nobody_need_read():
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    for each in (None, stream):
        cell = Cell(each, redraw=False)
        cell.feed(b"one\ntwo")
        cell.close()
    with contextlib.suppress(BrokenPipeError):
        stream.close()
