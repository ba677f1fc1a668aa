"""What a person sees: whole lines, prefixes, one report; never a job that waits for a reader."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure, Outcome
from tfrun.job.reports import EpochEnd, Error, FitEnd
from tfrun.observe import terminal_writer
from tfrun.observe.failure_report import headline
from tfrun.observe.job_summary import TRACEBACK_LINES, report_failure
from tfrun.observe.terminal import Terminal


def plain(*pieces: str) -> Terminal:
    terminal = Terminal(prefix_all=False, chief="worker:0")
    for piece in pieces:
        terminal.output("worker:0", "stdout", piece)
    return terminal


def prefixed(*pieces: tuple[str, str]) -> Terminal:
    """Shows (task, text) pairs and closes."""
    terminal = Terminal(prefix_all=True, chief="worker:0")
    for task, text in pieces:
        terminal.output(task, "stdout", text)
    terminal.close()
    return terminal


def test_pieces_pass_unchanged_and_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    plain("a", "b\r", "\x1b[1mc\x1b[0m", "\nd\n").close()
    assert capsys.readouterr() == ("ab\r\x1b[1mc\x1b[0m\nd\n", "")


def test_the_streams_stay_apart(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = plain("out\n")
    terminal.output("worker:0", "stderr", "err\n")
    terminal.close()
    assert capsys.readouterr() == ("out\n", "err\n")


def test_notices_stand_on_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = plain("1/10")
    terminal.notice("first")
    terminal.notice("second")
    terminal.close()
    assert capsys.readouterr() == ("1/10", "\ntfrun: first\ntfrun: second\n")


def test_a_warning_of_ours_does_not_hang_on_a_progress_bar(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = plain("3/9 ===\r4/9 ===")
    terminal.output("worker:0", "stderr", "tfrun: a warning\n")
    terminal.output("worker:0", "stderr", "tfrun: another\n")
    terminal.close()
    assert capsys.readouterr().err == "\ntfrun: a warning\ntfrun: another\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_notice_does_not_break_a_line_that_is_printed_in_pieces(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = io.StringIO()  # as with `2>&1`
    monkeypatch.setattr(sys, "stdout", both)
    monkeypatch.setattr(sys, "stderr", both)
    monkeypatch.setattr(terminal_writer, "PATIENCE_SECONDS", 60.0)
    terminal = Terminal(prefix_all=False, chief="worker:0")
    for piece in ("BITS", " ", "18"):
        terminal.output("worker:0", stream, piece)
        terminal.notice("a successor is ready")
    terminal.output("worker:0", stream, "\n")
    terminal.output("worker:0", stream, "more\n")
    terminal.close()
    said = "tfrun: a successor is ready\n" * 3
    assert both.getvalue() == ("BITS 18\n" + said + "more\n")


def test_a_notice_waits_for_no_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = plain("3/9 ===\r")
    terminal.notice("a successor is ready")
    found = ""
    deadline = time.monotonic() + 10
    while not found and time.monotonic() < deadline:
        found = capsys.readouterr().err
        time.sleep(0.01)
    terminal.close()
    assert found == "\ntfrun: a successor is ready\n"


def test_a_last_line_without_its_end_gets_one(capsys: pytest.CaptureFixture[str]) -> None:
    plain("no end").close()
    assert capsys.readouterr() == ("no end", "\n")


def test_muted_errors_are_not_shown_but_output_is(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = plain()
    terminal.mute_errors()
    terminal.output("worker:0", "stderr", "because of a peer\n")
    terminal.output("worker:0", "stdout", "mine\n")
    terminal.close()
    assert capsys.readouterr() == ("mine\n", "")


TRACEBACK = "Traceback (most recent call last):\n  File 'train.py', line 1\n\nValueError: no\n"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_traceback_is_shown_as_a_whole_or_not_at_all(
    capsys: pytest.CaptureFixture[str], size: int
) -> None:
    terminal, text = plain(), f"before\n{TRACEBACK}during it:\n{TRACEBACK}after\n"
    for at in range(0, len(text), size):
        terminal.output("worker:0", "stderr", text[at : at + size])
    terminal.output("worker:0", "stderr", "Traceback (most recent call last):\n  File")
    terminal.mute_errors()  # another worker has failed with the same, a moment before
    terminal.output("worker:0", "stderr", " 'train.py', line 1\n")
    terminal.next_round()
    terminal.output("worker:0", "stderr", "Traceback (most recent call last):\n  of a child")
    terminal.close()
    shown = capsys.readouterr().err
    assert shown == f"{text}Traceback (most recent call last):\n  of a child\n"


def test_a_line_that_a_round_has_cut_off_is_no_part_of_the_next_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal = Terminal(prefix_all=True, chief="worker:0")
    terminal.output("worker:1", "stdout", "cut o")
    terminal.next_round()
    terminal.output("worker:1", "stdout", "whole\n")
    terminal.close()
    assert capsys.readouterr().out == "[worker 1] cut o\n[worker 1] whole\n"


def test_errors_are_shown_again_in_the_next_round(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = plain()
    terminal.mute_errors()
    terminal.output("worker:0", "stderr", "because of a peer\n")
    terminal.next_round()
    terminal.output("worker:0", "stderr", "a warning\n")
    terminal.close()
    assert capsys.readouterr() == ("", "a warning\n")


def test_each_line_gets_its_tasks_name(capsys: pytest.CaptureFixture[str]) -> None:
    prefixed(("worker:0", "a\nb"), ("worker:1", "x\n"), ("worker:0", "c\n\n"), ("ps:0", "end"))
    assert capsys.readouterr().out.splitlines() == [
        *("[worker 0] a", "[worker 1] x", "[worker 0] bc", "[worker 0] ", "[ps 0] end")
    ]


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        (["1/3\r2/3\r3/3\n"], ["3/3"]),
        (["1/3\r", "2/3\r", "3/3\n"], ["3/3"]),
        (["\r1/3", "\r2/3", "\r3/3", "\n"], ["3/3"]),
        (["a\r\nb\r\n"], ["a", "b"]),
        (["a\r", "\nb"], ["a", "b"]),
        (["1/3\r2/3\r"], ["2/3"]),
        (["1/3\r"], ["1/3"]),
        (["a\rb\rc"], ["c"]),
    ],
)
def test_of_a_redrawn_line_the_last_state_stays(
    pieces: list[str], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    prefixed(*(("worker:0", piece) for piece in pieces))
    assert capsys.readouterr().out.splitlines() == [f"[worker 0] {line}" for line in lines]


@pytest.mark.parametrize("piece", ["{}/99999 [=====>......]\r", "\r{}/99999 [=====>......]"])
def test_a_bar_does_not_pile_up(piece: str, capsys: pytest.CaptureFixture[str]) -> None:
    start = time.process_time()
    prefixed(*(("worker:0", piece.format(step)) for step in range(20_000)))
    assert capsys.readouterr().out == "[worker 0] 19999/99999 [=====>......]\n"
    assert time.process_time() - start < 5  # typically 0.1 s; minutes when it piles up


@given(st.lists(st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]))))
def test_no_text_is_lost_however_it_is_cut(pieces: list[str]) -> None:
    stdout, sys.stdout = sys.stdout, io.StringIO()
    try:
        prefixed(*(("worker:0", piece) for piece in pieces))
        shown = sys.stdout.getvalue()
    finally:
        sys.stdout = stdout
    whole = "".join(pieces)
    lines = whole.split("\n")[:-1] + ([whole.split("\n")[-1]] if whole.split("\n")[-1] else [])
    assert shown == "".join(f"[worker 0] {line}\n" for line in lines)


def test_a_reader_that_has_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    file = io.TextIOWrapper(io.FileIO(writing, "w"), write_through=True)
    monkeypatch.setattr(sys, "stdout", file)
    plain(*["x" * 100_000 + "\n"] * 10).close()
    monkeypatch.undo()
    file.close()


def test_a_reader_that_does_not_read_does_not_block_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`tfrun … | less`: what is shown waits, what runs does not."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        start = time.monotonic()
        terminal = plain(*["x" * 100_000 + "\n"] * 50)
        assert time.monotonic() - start < 5.0
        received = bytearray()

        def read() -> None:
            while len(received) < 50 * 100_001:
                received.extend(os.read(reading, 1 << 20))

        reader = threading.Thread(target=read)
        reader.start()
        terminal.close()
        reader.join(timeout=20)
        monkeypatch.undo()
    os.close(reading)
    assert len(received) == 50 * 100_001


def test_a_closed_standard_output_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tfrun … >&-`: Python then has no sys.stdout."""
    terminal = plain()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        terminal.output("worker:0", "stdout", "lost\n")
    terminal.notice("shown")
    terminal.close()
    assert capsys.readouterr().err == "tfrun: shown\n"


def test_what_the_terminal_cannot_encode_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w", encoding="latin-1") as file:
        monkeypatch.setattr(sys, "stdout", file)
        plain("1/2 ━━━ é\n", "2/2\n").close()
        monkeypatch.undo()
    assert (tmp_path / "out").read_text(encoding="latin-1") == "1/2 ??? é\n2/2\n"


def test_only_the_chiefs_fit_is_summed_up() -> None:
    terminal = plain()
    terminal.report("worker:0", FitEnd(steps=1))
    terminal.report("worker:1", FitEnd(steps=2))
    terminal.report("worker:0", EpochEnd(epoch=0, steps=3))
    terminal.close()
    assert terminal.summary["steps"] == 1


ERROR = Error(
    type="ValueError",
    message="boom",
    traceback="Traceback (most recent call last):\n  File x\nValueError: boom\n",
)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (
            Failure(task="worker:1", time=0, status=ExitStatus(code=1), error=ERROR),
            "worker 1 failed first: exit code 1, ValueError",
        ),
        (
            Failure(task="worker:1", time=0, error=ERROR),
            "worker 1 failed first: exit code 1, ValueError",
        ),
        (
            Failure(
                task="chief:0",
                time=0,
                status=ExitStatus(code=7),
                error=Error(type="SystemExit", message="7", traceback="SystemExit: 7"),
            ),
            "chief 0 failed first: exit code 7",
        ),
        (
            Failure(task="ps:0", time=0, status=ExitStatus(code=-11), tail="dump"),
            "ps 0 failed first: killed by SIGSEGV",
        ),
        (
            Failure(task="worker:0", time=0, status=ExitStatus(code=-9, out_of_memory=True)),
            "worker 0 failed first: killed by the kernel because memory ran out (SIGKILL)",
        ),
        (
            Failure(task="local", time=0, code="TFRUN-301", tail="the agent local was lost: x"),
            "the agent local was lost: x",
        ),
    ],
)
def test_the_headline(failure: Failure, told: str) -> None:
    assert headline(failure) == told


def report(failure: Failure, others: int = 0, *, seen: bool = False, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    outcome = Outcome(exit_code=1, cause=failure, others=others)
    report_failure(outcome, "run/logs/worker-1.log", seen=seen, console=console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def failed(traceback: str = ERROR.traceback) -> Failure:
    error = replace(ERROR, traceback=traceback)
    return Failure(task="worker:1", time=0, status=ExitStatus(code=1), error=error)


def test_the_report_says_who_how_and_where_to_read_on() -> None:
    text = report(failed(), others=3)
    assert text.count("tfrun: the job failed") == 1
    for part in ("TFRUN-401: worker 1 failed first: exit code 1, ValueError", "ValueError: boom"):
        assert part in text
    assert "3 other tasks were stopped because of it." in text
    assert "1 other task was stopped" in report(failed(), others=1)
    assert "stopped because" not in report(failed())
    assert "Log: run/logs/worker-1.log" in text
    assert "…" not in text


def test_of_a_long_traceback_the_end_is_shown() -> None:
    text = report(failed("".join(f"frame {number}\n" for number in range(100))))
    assert "…" in text and "frame 99" in text
    assert text.count("frame ") == TRACEBACK_LINES


def test_what_was_on_the_terminal_already_is_not_repeated() -> None:
    text = report(failed(), seen=True)
    assert "ValueError: boom" in text
    assert "Traceback" not in text


def test_the_users_text_is_no_markup() -> None:
    assert "[red]a[/red] [/] :smile:" in report(failed("ValueError: [red]a[/red] [/] :smile:"))


@pytest.mark.parametrize("width", [1, 10, 40])
def test_a_narrow_terminal_gets_its_report(width: int) -> None:
    assert report(failed("é" * 500), width=width)
