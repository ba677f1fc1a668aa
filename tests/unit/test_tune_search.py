"""Which batch comes next, what came of one, what follows from it, and the curve."""

from __future__ import annotations

import io
import signal

import pytest
from rich.console import Console

from tfrun.cli.params import numbers_of_workers
from tfrun.job.errors import UsageError
from tfrun.tools import picture
from tfrun.tools.tune.report import TuneReport, draw, print_report, scaled
from tfrun.tools.tune.run import outcome
from tfrun.tools.tune.search import TriedBatch, best, ended_at_most, next_batch


def search(rate, *, start=8, most=65536):
    """All batches that are tried, and the best one; `rate(batch)` is None where memory ends."""
    tried: dict[int, TriedBatch] = {}
    while batch := next_batch(tried, start=start, most=most):
        assert batch not in tried and 1 <= batch <= most
        value = rate(batch)
        tried[batch] = TriedBatch(batch=batch, rate=value, ended_by="" if value else "memory")
    return list(tried), best(tried)


def test_doubling_goes_on_while_it_gains():
    tried, found = search(lambda batch: min(batch, 64) * 10.0)
    assert tried == [8, 16, 32, 64, 128]
    assert found is not None and found.batch == 64


def test_where_memory_ends_is_found_by_bisection():
    tried, found = search(lambda batch: None if batch > 100 else 10.0 * batch)
    assert tried[:5] == [8, 16, 32, 64, 128]
    assert found is not None and 88 <= found.batch <= 100
    assert len(tried) <= 9


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9, 1000])
def test_any_limit_is_found_to_an_eighth(limit):
    _, found = search(lambda batch: None if batch > limit else float(batch))
    assert found is not None and limit * 7 // 9 <= found.batch <= limit


def test_nothing_fits():
    tried, found = search(lambda batch: None)
    assert tried == [8, 4, 2, 1] and found is None


def test_no_batch_is_larger_than_wanted():
    tried, _ = search(float, most=50)
    assert tried == [8, 16, 32]


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (float, True),
        (lambda batch: min(batch, 16), False),
        (lambda b: b if b < 30 else None, False),
    ],
)
def test_it_is_told_when_only_the_largest_batch_that_is_wanted_ended_it(rate, told):
    tried: dict[int, TriedBatch] = {}
    while batch := next_batch(tried, start=8, most=50):
        tried[batch] = TriedBatch(batch=batch, rate=rate(batch), ended_by="")
    assert ended_at_most(tried, most=50) is told


MEASURED = {
    "outcome": "measured",
    "seconds": [0.5, 0.1, 0.1],
    "counts": [10, 10, 10],
    "memory": 10**9,
    "samples": 100,
}


def exited(code: int, status: str = "") -> dict:
    return {"event": "worker_exited", "task": "worker:0", "code": code, "status": status}


def raised(kind: str, message: str = "") -> dict:
    report = {"kind": "error", "type": kind, "message": message}
    return {"event": "worker_report", "task": "worker:0", "report": report}


def test_a_measurement_takes_the_median():
    found = outcome(10, MEASURED, [], "", limited=False)
    assert found == TriedBatch(batch=10, rate=100.0, milliseconds=100.0, memory=10**9)


@pytest.mark.parametrize(
    ("events", "log", "limited"),
    [
        ([raised("ResourceExhaustedError", "OOM when allocating tensor")], "", False),
        ([raised("MemoryError", "Unable to allocate 3 GiB")], "", False),
        ([raised("InternalError", "Cannot allocate memory")], "", False),
        ([exited(-9, "killed by the kernel because memory ran out (SIGKILL)")], "", False),
        ([exited(-signal.SIGABRT)], "what():  std::bad_alloc", False),
        ([exited(-signal.SIGSEGV)], "", True),
    ],
)
def test_memory_that_ran_out_is_a_result(events, log, limited):
    found = outcome(10, None, events, log, limited=limited)
    assert found is not None and found.ended_by == "memory" and found.how


@pytest.mark.parametrize(
    "events",
    [[], [raised("ValueError", "no such column")], [exited(-signal.SIGSEGV)], [exited(1)]],
)
def test_any_other_failure_is_none(events):
    assert outcome(10, None, events, "", limited=False) is None


def test_data_that_ends_is_a_result():
    found = outcome(10, {"outcome": "data", "samples": 7}, [], "", limited=False)
    assert found is not None and (found.ended_by, found.rate) == ("data", None)


def test_what_follows_for_more_workers():
    rate = {"rate": 0.1, "rule": "sqrt", "base": 0.1, "base_batch": 64}
    rows = scaled(64, (1, 4, 100), samples=1000, stated=32, rate=rate)
    assert [(row.global_batch, row.steps) for row in rows] == [(64, 16), (256, 4), (6400, 0)]
    assert [row.rate for row in rows] == pytest.approx([0.1, 0.2, 1.0])


def test_a_plain_rate_belongs_to_the_scripts_own_batch():
    (row,) = scaled(64, (2,), samples=1000, stated=32, rate={"rate": 0.1})
    assert row.rate == pytest.approx(0.4) and row.rule == "linear rule: 0.1 at batch 32"


def test_of_another_schedule_nothing_follows():
    (row,) = scaled(64, (2,), samples=1000, stated=32, rate={"schedule": "CosineDecay"})
    assert row.rate is None


@pytest.mark.parametrize("text", ["", "0", "x", "1,", "2:4"])
def test_numbers_of_workers_that_are_refused(text):
    with pytest.raises(UsageError, match="TFRUN-105"):
        numbers_of_workers(text, where="--for")


RESULTS = (
    TriedBatch(batch=8, rate=100.0, milliseconds=80.0, memory=10**9),
    TriedBatch(batch=16, rate=190.0, milliseconds=84.2, memory=2 * 10**9),
    TriedBatch(batch=32, ended_by="memory", how="ResourceExhaustedError"),
)


def test_the_report():
    rows = scaled(16, (1, 4), samples=50, stated=16, rate={"rate": 0.1})
    report = TuneReport(
        script="t.py", workers=1, results=RESULTS, chosen=RESULTS[1], scaled=tuple(rows)
    )
    file = io.StringIO()
    print_report(report, Console(file=file, width=120))
    text = file.getvalue()
    assert "out of memory: ResourceExhaustedError" in text
    assert "1 worker: global batch 16, 4 steps an epoch, learning rate 0.1" in text
    assert "4 workers: global batch 64, more than the data has" in text


def test_the_curve(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "curve.png"

    report = TuneReport(script="t.py", workers=1, results=RESULTS, chosen=RESULTS[1], scaled=())

    def curve(figure):
        draw(figure, report, "train")

    assert picture.drawn(path, curve) == f"the curve is in {path}"
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="TFRUN-105"):
        picture.drawn(tmp_path / "missing" / "curve.png", curve)
