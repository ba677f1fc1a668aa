"""The ledger's proof, on tapes as workers write them."""

from __future__ import annotations

import json

import pytest

from tfrun.data.ledger_check import verify
from tfrun.data.permutation import Order
from tfrun.data.shards import share_of_step, steps_per_epoch
from tfrun.job.errors import UsageError

SAMPLES, BATCH = 100, 32
STEPS = steps_per_epoch(SAMPLES, BATCH)


def write(run, round_, rank, size, steps, begin=(0, 0), number=1, seed=5):
    """Writes the tape of one worker that did `steps`, a list of (epoch, step)."""
    (run / "ledger").mkdir(exist_ok=True)
    header = {"data": "data0", "samples": SAMPLES, "batch": BATCH, "key": [seed, True]}
    header |= {"epoch": begin[0], "step": begin[1], "round": round_, "rank": rank, "size": size}
    lines = [header]
    for epoch, step in steps:
        first, last = share_of_step(step, SAMPLES, BATCH, rank, size)
        lines.append({"e": epoch, "s": step, "b": first, "n": last - first})
    path = run / "ledger" / f"data0-{round_:05}-{number:05}-{rank:05}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def steps(count, begin=0):
    return [divmod(number, STEPS) for number in range(begin, count)]


def test_two_whole_epochs_on_three_workers_are_exact(tmp_path):
    for rank in range(3):
        write(tmp_path, 0, rank, 3, steps(2 * STEPS))
    reports = verify(tmp_path)
    assert [(r.epoch, r.exact, r.complete, r.consumed) for r in reports] == [
        (0, True, True, 100),
        (1, True, True, 100),
    ]
    assert reports[0].worlds == (3,)


def test_a_death_and_a_smaller_world_are_exact(tmp_path):
    """Three workers; one dies in step 5, the others had it half done; two go on from step 5."""
    write(tmp_path, 0, 0, 3, steps(6))
    write(tmp_path, 0, 1, 3, steps(6))
    write(tmp_path, 0, 2, 3, steps(5))
    for rank in range(2):
        write(tmp_path, 1, rank, 2, steps(2 * STEPS, 5), begin=divmod(5, STEPS))
    reports = verify(tmp_path)
    assert [report.exact for report in reports] == [True, True]
    assert reports[1].worlds == (3, 2)


def test_samples_that_were_lost_are_named(tmp_path):
    write(tmp_path, 0, 0, 2, steps(2 * STEPS))
    write(tmp_path, 0, 1, 2, [place for place in steps(2 * STEPS) if place != (0, 1)])
    first, second = verify(tmp_path)
    assert second.exact
    assert not first.exact
    begin, end = share_of_step(1, SAMPLES, BATCH, 1, 2)
    assert first.missing == tuple(Order(samples=100, seed=5, shuffle=True).indices(0, begin, end))
    assert not first.duplicates


def test_samples_that_were_read_twice_are_named(tmp_path):
    write(tmp_path, 0, 0, 1, [*steps(STEPS), (0, 2)])
    (report,) = verify(tmp_path)
    expected = Order(samples=100, seed=5, shuffle=True).indices(0, 64, 96)
    assert report.duplicates == tuple(expected[:20])
    assert not report.exact


def test_a_run_that_began_and_ended_within_epochs_is_exact_as_far_as_it_went(tmp_path):
    write(tmp_path, 0, 0, 1, steps(2 * STEPS - 1, 2), begin=(0, 2))
    first, second = verify(tmp_path)
    assert (first.exact, first.expected, first.complete) == (True, 36, True)
    assert (second.exact, second.expected, second.complete) == (True, 96, False)


def test_a_line_that_a_killed_worker_left_half_written_is_none(tmp_path):
    path = write(tmp_path, 0, 0, 1, steps(STEPS))
    path.write_text(path.read_text() + '{"e":1,"s"')
    (report,) = verify(tmp_path)
    assert report.exact


def test_data_that_changed_between_rounds_is_refused(tmp_path):
    write(tmp_path, 0, 0, 1, steps(STEPS))
    write(tmp_path, 1, 0, 1, steps(2 * STEPS, STEPS), begin=(1, 0), seed=6)
    with pytest.raises(UsageError, match="TFRUN-607"):
        verify(tmp_path)


def test_a_run_without_a_ledger_is_refused(tmp_path):
    with pytest.raises(UsageError, match="TFRUN-604"):
        verify(tmp_path)
