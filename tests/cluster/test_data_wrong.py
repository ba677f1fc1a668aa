"""Wrong input of `tfrun.Dataset`, as a user of a job meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

SCRIPT = Path(__file__).with_name("scripts") / "data_wrong.py"
EXPECTED = {
    "empty": ("TFRUN-601", "at least one sample"),
    "no batch: fit": ("TFRUN-601", "in model.fit, x"),
    "no batch: evaluate": ("TFRUN-601", "in model.evaluate, x"),
    "no batch: predict": ("TFRUN-601", "in model.predict, x"),
    "no batch: steps": ("TFRUN-601", "in state.steps, dataset"),
    "lengths": ("TFRUN-602", "0: 8, 1: 5"),
    "batch": ("TFRUN-603", "9 is larger than the data of 8 samples"),
    "no file": ("TFRUN-604", "nowhere-*"),
    "gzip": ("TFRUN-606", 'compression="GZIP"'),
    "cut off": ("TFRUN-605", "byte 741"),
    "vanished": ("TFRUN-604", "it has become shorter"),
    "position": ("TFRUN-607", "a step from 0 to 9"),
}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from conftest import Jobs  # type: ignore[import-not-found]

    made = Jobs(tmp_path_factory.mktemp("wrong"), "wrong-input")
    done = made.run("-n", 2, SCRIPT, "build")
    assert done.returncode == 0, done.stderr
    return made, done


@pytest.fixture(scope="module")
def texts(job: Any) -> list[dict[str, str]]:
    return [json.loads((job[0].directory / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("case", EXPECTED)
def test_each_worker_gets_a_coded_error(texts: list[dict[str, str]], case: str) -> None:
    code, what = EXPECTED[case]
    for found in texts:
        assert f": {code}: " in found[case], found[case]
        assert what in found[case]


def test_what_trains_nothing_is_told_and_what_has_trained_is_let_be(job, texts) -> None:
    for found in texts:
        assert found["spent"] == found["validation"] == "nothing"
    # When it is known and at the end.
    assert job[1].stderr.count("WARNING TFRUN-601: the validation data is empty") == 2


def damaged(folder: Path) -> int:
    """Writes `records`, whose record 33 is damaged; the byte at which that begins."""
    path = folder / "records"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(40):
            writer.write(f"{number:03}".encode())
    begin = path.stat().st_size // 40 * 33
    with path.open("r+b") as file:
        file.seek(begin + 13)
        file.write(b"x")
    return begin


def test_a_corrupt_record_ends_the_job_with_one_report(jobs) -> None:
    begin = damaged(jobs.directory)
    done = jobs.run("-n", 2, SCRIPT, "raise")
    assert done.returncode == 1
    assert done.stderr.count("tfrun: the job failed") == 1
    shown = " ".join(done.stderr.replace("│", " ").split())
    assert f"TFRUN-605: the record at byte {begin} is corrupt: its checksum is wrong" in shown
    assert "records" in shown
    # The record is in the first worker's part of its batch.
    assert "worker 0 failed first" in shown


def test_skipped_samples_are_counted_over_workers_and_rounds(jobs) -> None:
    begin = damaged(jobs.directory)
    done = jobs.run("-n", 2, SCRIPT, "skip", env={"KILL": "1"})
    assert done.returncode == 0, done.stderr
    assert "1 restart" in done.stderr
    assert "1 sample left out" in done.stderr
    assert done.stderr.count("sample 33 is left out") >= 1
    assert f"the record at byte {begin} is corrupt" in done.stderr
    counts = json.loads((jobs.directory / "counts.json").read_text())
    # The last batch had seven samples instead of eight.
    assert counts[:32] == [2.0] * 32
    assert counts[32:] == [
        pytest.approx(0 if number == 33 else 16 / 7, 1e-3) for number in range(32, 40)
    ]
