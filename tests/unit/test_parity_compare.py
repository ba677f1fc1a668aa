"""Where two runs part, what is told of it, and what it may come from."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tfrun.cli.params import numbers_of_workers
from tfrun.job.errors import UsageError
from tfrun.tools.parity.compare import StepRecord, compare, distance
from tfrun.tools.parity.report import ParityReport, advice, print_report
from tfrun.train.recording import WIDTH, sketch

RNG = np.random.default_rng(0)
KERNEL = RNG.normal(size=64)


def record(step: int, loss: float = 1.0, **changes: float) -> StepRecord:
    """A state after a step, with some variables moved by so much, relatively."""
    sketches = {
        "model/0/dense/kernel": KERNEL * (1 + changes.get("kernel", 0.0)),
        "model/1/bn/moving_mean": KERNEL * (1 + changes.get("mean", 0.0)),
        "optimizer/2/sgd/learning_rate": np.array([0.1 * (1 + changes.get("rate", 0.0))]),
    }
    if "random" in changes:
        sketches["model/3/dropout/seed_generator_state"] = np.array([changes["random"]])
    sizes = {name: value.size for name, value in sketches.items()}
    logs = {"loss": loss} if step else {}
    return StepRecord(step=step, logs=logs, sketches=sketches, sizes=sizes)


FIRST = [record(0), record(1), record(2), record(3)]


def test_runs_that_differ_by_rounding_are_equal():
    other = [record(0), record(1, 1 + 1e-9, kernel=1e-7), record(2), record(3, kernel=2e-7)]
    found = compare(2, FIRST, other, 1e-5)
    assert found.equal and found.parting is None and found.largest is not None
    assert (found.largest.name, found.largest.kind) == ("dense/kernel", "model")
    assert found.largest.far == pytest.approx(2e-7, rel=1e-3)
    assert advice(found, has_random_layers=False) == ""


def test_the_first_parting_is_named_with_its_step_and_distance():
    other = [record(0), record(1), record(2, kernel=2e-3), record(3, 1.5, kernel=0.1)]
    found = compare(2, FIRST, other, 1e-5)
    assert not found.equal and found.parting is not None
    assert found.parting.step == 2
    (difference,) = found.parting.differences
    assert difference.name == "dense/kernel" and difference.far == pytest.approx(2e-3)
    assert found.largest is not None and found.largest.far == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ([record(0, kernel=0.5)], "before the first step"),
        ([record(0, rate=1.0)], "learning rate depends"),
        ([record(0), record(1, 1.2)], "saw other samples"),
        ([record(0), record(1, kernel=0.1)], "added up differently"),
        ([record(0), record(1, mean=0.1)], "BatchNormalization"),
        ([record(0), record(1, kernel=8e-4), record(2, kernel=2e-3)], "as rounding does"),
        ([record(0), record(1, kernel=1e-6), record(2, kernel=0.1)], "begins to depend"),
        ([record(0), record(1)], "different numbers of steps"),
    ],
)
def test_each_cause_has_its_advice(other, told):
    found = compare(2, FIRST, other, 1e-5)
    assert not found.equal
    assert told in advice(found, has_random_layers=False)


def test_a_trained_variable_may_be_a_hundred_times_as_far_as_a_loss():
    """The bias of digits' convolution: 1.2e-5, where the loss differs by 8e-8."""
    near = [record(0), record(1), record(2, 1 + 8e-8, kernel=5e-5), record(3, kernel=9e-4)]
    assert compare(2, FIRST, near, 1e-5).equal
    assert not compare(2, FIRST, [record(0), record(1, 1 + 2e-5)], 1e-5).equal
    assert not compare(2, FIRST, [record(0, kernel=5e-5), *FIRST[1:]], 1e-5).equal  # not trained


def test_with_as_many_replicas_all_bits_count():
    def run(step: int, digest: str, **changes: float) -> StepRecord:
        return replace(record(step, **changes), digests={"model/0/dense/kernel": digest})

    first = [run(0, "a"), run(1, "b")]
    assert compare(2, first, [run(0, "a"), run(1, "b")], 0.0).equal
    for other in ([run(0, "a"), run(1, "c")], [run(0, "a"), run(1, "b", kernel=1e-7)]):
        found = compare(2, first, other, 0.0)
        report = ParityReport(
            script="train.py",
            seed=1,
            tolerance=0.0,
            replicas=4,
            has_random_layers=False,
            runs=(found,),
        )
        assert not report.equal and found.parting is not None and found.parting.step == 1
        assert "another order" in report.advice(found)
    assert compare(2, first, [run(0, "a"), run(1, "c")], 1e-5).equal  # within the tolerance


def test_random_layers_explain_another_loss():
    first = [record(0, random=1.0), record(1, random=2.0)]
    other = [record(0, random=1.0), record(1, 1.1, random=2.0)]
    assert "dropout" in advice(compare(2, first, other, 1e-5), has_random_layers=True)


def test_what_only_one_run_has_is_infinitely_far():
    found = compare(2, [record(0)], [record(0, random=1.0)], 1e-5)
    assert found.parting is not None and found.parting.differences[0].far == math.inf


def test_numbers_that_are_none_are_equal_to_themselves_only():
    nan = np.array([1.0, np.nan, np.inf])
    assert distance(nan, nan.copy(), 3) == 0
    assert distance(nan, np.ones(3), 3) == math.inf


def test_a_value_near_zero_is_no_measure():
    assert distance(np.array([1e-9]), np.array([2e-9]), 1) == pytest.approx(1e-6)


@pytest.mark.parametrize("size", [1, WIDTH, WIDTH + 1, 300_000])
def test_the_distance_of_sketches_is_that_of_the_variables(size):
    a = RNG.normal(size=size).astype(np.float32)
    b = a + 1e-3 * RNG.normal(size=size).astype(np.float32)
    found = distance(sketch(a), sketch(b), size)
    assert found == pytest.approx(np.linalg.norm(b - a) / np.linalg.norm(a), rel=0.2)
    assert sketch(a).size == min(size, WIDTH)


def test_one_changed_number_of_a_large_variable_is_seen():
    a = RNG.normal(size=(1000, 500))
    b = a.copy()
    b[123, 45] += 1.0
    assert distance(sketch(a), sketch(b), a.size) == pytest.approx(1 / np.linalg.norm(a), rel=0.2)


@pytest.mark.parametrize("text", ["", "1", "1,1", "0,2", "1,x", "1,-2", "1,2:4", "1,,2", "9" * 9])
def test_numbers_of_workers_that_are_refused(text):
    with pytest.raises(UsageError, match="TFRUN-105"):
        numbers_of_workers(text, where="-n", least=2)


def test_numbers_of_workers():
    assert numbers_of_workers("1,2,4,2", where="-n", least=2) == (1, 2, 4)


def test_the_report():
    other = [record(0), record(1, math.nan, kernel=0.5), record(2), record(3)]
    runs = (compare(1, FIRST, FIRST, 1e-5), compare(2, FIRST, other, 1e-5))
    report = ParityReport(
        script="train.py", seed=3, tolerance=1e-5, has_random_layers=False, runs=runs
    )
    assert not report.equal
    found = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert [run["equal"] for run in found["runs"]] == [True, False]
    file = io.StringIO()
    print_report(report, Console(file=file, width=120))
    assert "2 workers: diverge at step 1: loss by inf, dense/kernel by 5.0e-01" in file.getvalue()
