"""What to run: the number of workers as people write it, the specification as it travels."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.job.errors import UsageError
from tfrun.job.spec import MAX_WORKERS, JobSpec, Program, WorkerRange
from tfrun.job.timeouts import Timeouts


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("1", 1, 1),
        ("4", 4, 4),
        ("2:8", 2, 8),
        ("3:3", 3, 3),
        ("007", 7, 7),
        ("65535", 65535, 65535),
    ],
)
def test_a_number_of_workers_or_a_range(text: str, low: int, high: int) -> None:
    assert WorkerRange.parse(text) == WorkerRange(low=low, high=high)


BAD_NUMBERS = (
    *("0", "4:2", "0:2", "", "a", ":", "1:", ":2", "-1", "+1", "1:2:3", " 2", "2 ", "2\n", "1 :2"),
    *("²", "2:²", "٣", "2:٣", "1e3", "1.0", "0x2", "1_000", "None", "2,4", "2-4", "\x00", "\udcff"),
    *("65536", "1:65536", "9" * 30, "9" * 10_000, "1:" + "9" * 10_000),
)


@pytest.mark.parametrize("text", BAD_NUMBERS, ids=lambda text: f"{text!r:.12}")
def test_what_is_no_number_of_workers_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        WorkerRange.parse(text)
    assert (caught.value.code, caught.value.where) == ("TFRUN-103", "-n")
    assert len(str(caught.value)) < 250
    assert str(caught.value).isprintable()


@given(st.text())
def test_any_text_is_a_range_or_a_usage_error(text: str) -> None:
    try:
        parsed = WorkerRange.parse(text)
    except UsageError as error:
        assert error.code == "TFRUN-103"
    else:
        assert 1 <= parsed.low <= parsed.high <= MAX_WORKERS


@given(st.integers(1, MAX_WORKERS), st.integers(1, MAX_WORKERS))
def test_a_range_reads_its_own_text(a: int, b: int) -> None:
    workers = WorkerRange(low=min(a, b), high=max(a, b))
    assert WorkerRange.parse(str(workers)) == workers


@pytest.mark.parametrize(
    ("target", "is_module", "name"),
    [
        ("train.py", False, "train"),
        ("/a/b/my.model.py", False, "my.model"),
        ("train", False, "train"),
        ("./.hidden", False, ".hidden"),
        ("package.train", True, "train"),
        ("package", True, "package"),
    ],
)
def test_a_program_has_a_short_name(target: str, is_module: bool, name: str) -> None:
    assert Program(target=target, is_module=is_module).name == name


SPECS = st.builds(
    JobSpec,
    program=st.builds(
        Program,
        target=st.text(),
        is_module=st.booleans(),
        args=st.lists(st.text()).map(tuple),
    ),
    workers=st.integers(1, 9).map(lambda low: WorkerRange(low=low, high=2 * low)),
    ps=st.integers(0, 9),
    run_dir=st.text(),
    communication=st.sampled_from(["auto", "host", "ring", "nccl"]),
    compress=st.sampled_from(["off", "bf16", "fp16"]),
    replicas=st.integers(0, 100),
    balance=st.sampled_from(["off", "auto"]),
    in_place=st.booleans(),
    overlap=st.sampled_from(["auto", "on", "off"]),
    small_bytes=st.none() | st.integers(0, 1 << 30),
    threads_per_worker=st.none() | st.integers(1, 64),
    seed=st.integers(0, 2**31 - 1),
    sync_check=st.integers(0, 1000),
    strict=st.booleans(),
    log_all=st.booleans(),
    timeouts=st.floats(1, 500).map(
        lambda t: Timeouts(heartbeat_timeout=t + 1, launcher_timeout=t + 2)
    ),
)


@given(SPECS)
def test_a_specification_survives_its_journey_as_json(spec: JobSpec) -> None:
    assert JobSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_arguments_that_are_not_utf8_survive_the_journey() -> None:
    spec = JobSpec(program=Program(target="a.py", args=("caf\udce9",)), run_dir="/r\udcff")
    assert JobSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize("text", ["auto", "0", "100", "30s", "0.5s", "007"])
def test_how_often_snapshots_are_written(text: str) -> None:
    spec = JobSpec(program=Program(target="train.py"), run_dir="/run", snapshot_every=text)
    assert spec.snapshot_every == text


@pytest.mark.parametrize(
    "text", ["", "0s", "0.0s", "s", "-1", "1.5", "30 s", "1m", "\u0663", "9" * 99]
)
def test_what_does_not_say_how_often(text: str) -> None:
    with pytest.raises(UsageError, match="TFRUN-105"):
        JobSpec(program=Program(target="train.py"), run_dir="/run", snapshot_every=text)
