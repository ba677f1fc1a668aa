"""What a worker tells of its steps' time, with clocks of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tfrun.engine import agree
from tfrun.job.reports import encode
from tfrun.process import channel
from tfrun.train import step_meter
from tfrun.train.step_meter import StepMeter


class Time:
    """All the clocks that the meter reads, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def read(self) -> float:
        return self.now

    perf_counter = monotonic = time = read

    def process_time(self) -> float:
        return self.now / 2


class InGraph:
    """What engine/step_clock.py would have measured."""

    def __init__(self, origin: float) -> None:
        self.origin = origin
        self.inside = self.waited = self.waited_before = self.waited_after = self.arrived = 0.0

    def read(self) -> tuple[float, ...]:
        return self.inside, self.waited, self.waited_before, self.waited_after, self.arrived


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(step_meter, "time", made)
    return made


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr(channel, "emit", lambda report: reports.append(encode(report)))
    return reports


def step(time: Time, meter: StepMeter, clock: InGraph | None, number: int, *, slow: float = 0.0):
    """10 ms of input, 50 of computing; waiting: 2 before, 30 inside, 3 after; 5 of TensorFlow."""
    meter.begins()
    if clock:
        clock.arrived += time.now + 0.012 + slow - clock.origin
        clock.inside += 0.080
        clock.waited += 0.030
        clock.waited_before += 0.002
        clock.waited_after += 0.003
    time.now += 0.100 + slow
    meter.returned()
    time.now += 0.005  # callbacks
    meter.ended(epoch=0, in_epoch=number, step=number, logs={"loss": 1.5, "name": "x"})


def test_each_second_one_report_of_all_parts(time: Time, sent: list[dict[str, Any]]):
    clock = InGraph(time.now)
    meter = StepMeter(clock, fetches=True)
    for number in range(1, 21):
        step(time, meter, clock, number)
    first, second = sent
    assert (first["steps"], first["aside"]) == (0, {"tracing": 0.1})
    steps = second["steps"]
    assert 9 <= steps <= 10
    assert second["step"] == steps + 1
    # The last step's callbacks are a part of the next report.
    assert second["seconds"] == pytest.approx(steps * 0.105, abs=0.006)
    found = [part / steps for part in second["split"]]
    assert found == pytest.approx([0.010, 0.050, 0.035, 0.010], abs=0.001)
    assert second["logs"] == {"loss": 1.5}
    assert second["cpu"] == pytest.approx(0.5)
    assert second["rss"] > 1 << 20


def test_slow_input_is_input(time: Time, sent: list[dict[str, Any]]):
    clock = InGraph(time.now)
    meter = StepMeter(clock, fetches=True)
    for number in range(1, 21):
        step(time, meter, clock, number, slow=0.1)
    assert sent[1]["split"][0] / sent[1]["steps"] == pytest.approx(0.110, abs=0.001)


def test_without_clocks_in_the_graph_the_step_is_one_part(time: Time, sent: list[dict[str, Any]]):
    meter = StepMeter(None, fetches=True)
    for number in range(1, 21):
        step(time, meter, None, number)
    fetched, compute, waited, other = sent[1]["split"]
    assert (fetched, waited) == (None, None)
    assert compute / sent[1]["steps"] == pytest.approx(0.1)
    assert other / sent[1]["steps"] == pytest.approx(0.005, abs=0.001)


def test_validation_and_checkpoints_are_no_part_of_a_step(time: Time, sent: list[dict[str, Any]]):
    clock = InGraph(time.now)
    meter = StepMeter(clock, fetches=True)
    for number in range(1, 4):
        step(time, meter, clock, number)
    meter.rests()
    meter.evaluation_begins()
    time.now += 7.0
    clock.waited_before += 3.0  # its own batches are waited for as well
    meter.evaluation_ends()
    with meter.aside("checkpoint"):
        time.now += 0.5
    for number in range(4, 6):
        step(time, meter, clock, number)
    meter.closes()
    told = [report for report in sent if report.get("aside", {}).get("evaluation")]
    (report,) = told
    assert report["aside"] == {"evaluation": 7.0, "checkpoint": 0.5}
    assert report["seconds"] < 0.5
    assert report["split"][2] == pytest.approx(report["steps"] * 0.035)


def test_the_loop_of_a_script_waits_for_its_batches_between_the_steps(
    time: Time, sent: list[dict[str, Any]]
):
    meter = StepMeter(None, fetches=False)

    def batches():
        for number in range(1, 21):
            time.now += 0.020
            yield number

    for number in meter.fetching(batches()):
        step(time, meter, None, number)
    fetched, compute, _, other = (part or 0.0 for part in sent[1]["split"])
    steps = sent[1]["steps"]
    assert fetched / steps == pytest.approx(0.020, abs=0.003)
    assert compute / steps == pytest.approx(0.100)
    assert other / steps == pytest.approx(0.005, abs=0.003)


def test_the_first_batch_of_an_epoch_is_no_part_of_a_step(time: Time, sent: list[dict[str, Any]]):
    clock = InGraph(time.now)
    meter = StepMeter(clock, fetches=False)

    def batches():
        time.now += 5.0  # an iterator is made, and waits for the others
        clock.waited_before += 2.0
        for number in range(3):
            time.now += 0.020
            yield number

    for _ in range(3):
        for number in meter.fetching(batches()):
            step(time, meter, clock, number)
        meter.rests()
    meter.closes()
    assert sum(report["steps"] for report in sent) == 8
    seconds = sum(report["seconds"] for report in sent)
    assert seconds < 1.5
    assert sum(sum(report["split"]) for report in sent[1:]) == pytest.approx(seconds, 0.1)


def test_what_is_left_is_told_at_the_end(time: Time, sent: list[dict[str, Any]]):
    meter = StepMeter(None, fetches=True)
    meter.closes()
    assert sent == []  # nothing was trained
    for number in range(1, 4):
        step(time, meter, None, number)
    meter.closes()
    assert [report["steps"] for report in sent] == [0, 2]


def test_what_is_agreed_on_between_two_steps_is_waiting(
    time: Time, sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    """Callbacks that may stop a training are asked on all workers: one waits for the slowest."""
    waited = agree.Waited()
    monkeypatch.setattr(agree, "waited", waited)
    clock = InGraph(time.now)
    meter = StepMeter(clock, fetches=True)

    def agreed(seconds: float) -> None:
        time.now += seconds
        waited.seconds += seconds

    for number in range(1, 21):
        step(time, meter, clock, number)
        agreed(0.040)
        with meter.aside("checkpoint"):
            agreed(0.500)
    meter.closes()
    steps = sum(report["steps"] for report in sent)
    each = [sum(r["split"][part] for r in sent if r["steps"]) / steps for part in range(4)]
    assert each == pytest.approx([0.010, 0.050, 0.035 + 0.040, 0.010], abs=0.006)
