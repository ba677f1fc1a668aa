"""The ledger as workers write it, and the proof from it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from full_disk import no_file_beyond

from tfrun.data.ledger import writer as ledger
from tfrun.data.ledger.proof import compared, examine
from tfrun.data.order.permutation import Order
from tfrun.data.order.position import Position
from tfrun.data.order.shards import share_of_step, steps_per_epoch
from tfrun.job.errors import TfrunError, UsageError

SAMPLES, BATCH = 100, 32
STEPS = steps_per_epoch(SAMPLES, BATCH)


class Data:
    """What a ledger wants to know of a `tfrun.Dataset`."""

    def __init__(self, name="data0", samples=SAMPLES, batch=BATCH, seed=5, is_stream=False):
        self.name, self.samples, self.batch_size = name, samples, batch
        self.seed, self.is_stream = seed, is_stream
        self.is_by_file, self.tolerant = False, None

    def described(self):
        return {
            **{"data": self.name, "samples": self.samples, "batch": self.batch_size},
            **{"seed": self.seed, "shuffle": not self.is_stream, "tolerant": self.tolerant},
            "by": "position" if self.is_stream else "sample",
        }

    def share(self, step, replicas, skip):
        rank, size = replicas.first, replicas.total
        return share_of_step(step, self.samples, self.batch_size, rank, size, skip)


class Replicas:
    """A `tfrun.data.pipeline.Replicas`, which would bring TensorFlow with it."""

    def __init__(self, first, total):
        self.first, self.count, self.total = first, 1, total


class Run:
    """The workers of a job, in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, work_under) -> None:
        self.folder, self._set, self._work_under = folder, monkeypatch.setenv, work_under

    def work(self, round_, rank, size, job=1, call=0):
        """From now on this process is that worker, in its training `call`."""
        self._work_under(run_dir=str(self.folder), ledger=job)
        for name, value in {"TFRUN_ROUND": round_, "RANK": rank, "WORLD_SIZE": size}.items():
            self._set(name, str(value))
        ledger.training_begins(call)

    def file(self, round_, rank, job=1) -> Path:
        return self.folder / "ledger" / f"{job:04}-{round_:05}-{rank:05}.jsonl"


@pytest.fixture
def run(tmp_path, monkeypatch, work_under):
    monkeypatch.setattr(ledger, "_open", {})
    yield Run(tmp_path, monkeypatch, work_under)
    ledger._unsettled.clear()


def read(count, begin=0, *, rank, size, data=None, ends=False, **options):
    """Takes the steps [begin, count); all but the last are over, which is if it `ends`."""
    data, place = data or Data(), Position.of(begin, STEPS)
    if options.get("how") == "resumed":
        ledger.open_tape(data, place, how=options.pop("how"))  # type: ignore[arg-type]
    replicas = Replicas(first=rank, total=size)
    tape = ledger.open_tape(data, place, replicas, **options)  # type: ignore[arg-type]
    for number in range(begin, count):
        tape.taken(*divmod(number, STEPS))
    if ends:
        tape.settle()
    return tape


def all_read(run, round_, size, count, begin=0, **options):
    """All workers of a round take the same steps."""
    chosen = {name: options.pop(name) for name in ("job", "call") if name in options}
    for rank in range(size):
        run.work(round_, rank, size, **chosen)
        read(count, begin, rank=rank, size=size, **options)


def exact(run) -> list[tuple]:
    return [(r.epoch, r.exact, r.complete, r.consumed) for r in examine(run.folder).epochs]


def test_two_whole_epochs_on_three_workers_are_exact(run):
    all_read(run, 0, 3, 2 * STEPS, ends=True)
    assert exact(run) == [(0, True, True, 100), (1, True, True, 100)]
    report = examine(run.folder)
    assert (report.exact, report.jobs, report.rounds, report.no_tape) == (True, 1, 1, ())
    assert [(r.worlds, r.steps) for r in report.epochs] == [((3,), 4), ((3,), 4)]


def test_it_is_compact_and_each_step_costs_one_line_that_is_written_over(run):
    data = Data(samples=100_000, batch=100)
    run.work(0, 1, 4)
    tape = ledger.open_tape(data, Position(), Replicas(first=1, total=4))  # type: ignore[arg-type]
    sizes = []
    for step in range(1000):
        tape.taken(0, step)
        sizes.append(run.file(0, 1).stat().st_size)
    assert len(set(sizes)) == 1
    assert sizes[0] <= 4 * ledger.WIDTH
    *_, last = run.file(0, 1).read_text().splitlines()
    assert json.loads(last) == {
        **{"pass": 0, "epoch": 0, "step": 0, "begin": 25, "count": 25},
        **{"taken": 1000, "done": 999},
    }


def test_the_last_step_counts_only_when_it_is_over(run):
    all_read(run, 0, 2, 3)
    assert exact(run) == [(0, True, False, 64)]
    ledger.settle()
    assert exact(run) == [(0, True, False, 96)]


@pytest.mark.parametrize("goes_on_from", [4, 5])
def test_a_death_counts_what_the_survivors_state_holds(run, goes_on_from):
    """Worker 2 dies in step 4: it was given its samples. The others may or may not have done it."""
    for rank in range(3):
        run.work(0, rank, 3)
        read(5, rank=rank, size=3, ends=goes_on_from == 5 and rank < 2)
    all_read(run, 1, 2, 2 * STEPS, goes_on_from, how="resumed", ends=True)
    assert exact(run) == [(0, True, True, 100), (1, True, True, 100)]
    assert examine(run.folder).epochs[1].worlds == ((3, 2) if goes_on_from == 5 else (2,))


def test_steps_that_a_lost_state_had_done_do_not_count(run):
    """All die at step 7; the next round goes on from step 5, then grows."""
    all_read(run, 0, 2, 7, ends=True)
    all_read(run, 1, 2, 6, 5, how="resumed")
    all_read(run, 2, 4, 2 * STEPS, 5, how="resumed", ends=True)
    assert exact(run) == [(0, True, True, 100), (1, True, True, 100)]
    assert examine(run.folder).epochs[1].worlds == (2, 4)


def test_a_state_that_skips_a_step_is_found_out(run):
    all_read(run, 0, 2, 2)
    all_read(run, 1, 2, STEPS, 3, how="resumed", ends=True)
    (report,) = examine(run.folder).epochs
    wanted = Order(samples=SAMPLES, seed=5, shuffle=True).indices(0, 64, 96)
    assert (report.missing_count, set(report.missing) <= set(wanted)) == (32, True)
    assert (len(report.missing), report.exact, report.consumed) == (20, False, 68)


def test_the_last_step_of_a_training_that_only_the_dead_have_seen_end(run):
    """All steps are done, and a worker dies before anybody has noted it."""
    all_read(run, 0, 2, STEPS)
    run.work(1, 0, 1)
    ledger.open_tape(Data(), Position(epoch=1), how="resumed")  # type: ignore[arg-type]
    assert exact(run) == [(0, True, True, 100)]


def test_a_training_that_was_passed_by_counts_as_far_as_it_had_come(run):
    all_read(run, 0, 2, 3)
    run.work(1, 0, 1)
    ledger.training_is_done()
    ledger.open_tape(Data(), Position())  # type: ignore[arg-type]
    assert exact(run) == [(0, True, False, 96)]


def test_another_job_in_the_same_directory_goes_on(run):
    all_read(run, 0, 2, 6)
    all_read(run, 0, 2, 2 * STEPS, 4, job=2, how="resumed", ends=True)
    assert exact(run) == [(0, True, True, 100), (1, True, True, 100)]
    assert examine(run.folder).jobs == 2


def test_a_job_that_begins_anew_takes_everything_back(run):
    all_read(run, 0, 2, 2 * STEPS, ends=True)
    all_read(run, 0, 2, 3, call=1, data=Data("data1"), ends=True)
    all_read(run, 0, 2, STEPS, job=2, ends=True)
    assert exact(run) == [(0, True, True, 100)]


def test_several_trainings_of_one_dataset(run):
    """The second one goes on in the next epoch and is cut off in it."""
    all_read(run, 0, 2, STEPS, ends=True)
    all_read(run, 0, 2, STEPS + 2, STEPS, call=1)
    run.work(1, 0, 1)
    ledger.training_is_done()
    ledger.open_tape(Data(), Position())  # type: ignore[arg-type]
    run.work(1, 0, 1, call=1)
    read(2 * STEPS, STEPS + 1, rank=0, size=1, how="resumed", ends=True)
    assert exact(run) == [(0, True, True, 100), (1, True, True, 100)]


def test_a_script_that_goes_back_reads_again(run):
    """The second model sees the same epochs; its training is cut off."""
    all_read(run, 0, 2, STEPS, ends=True)
    all_read(run, 0, 2, 3, call=1, how="sought")
    all_read(run, 1, 2, STEPS, 2, call=1, how="resumed", ends=True)
    reports = examine(run.folder).epochs
    assert [(r.reading, r.epoch, r.exact, r.complete) for r in reports] == [
        (0, 0, True, True),
        (1, 0, True, True),
    ]


def test_what_the_script_leaves_out_is_not_missing(run):
    """A training ends within epoch 0, the next one begins with epoch 1."""
    all_read(run, 0, 2, 3, ends=True)
    all_read(run, 0, 2, 2 * STEPS, STEPS, call=1, left=Position(step=3), ends=True)
    all_read(run, 0, 2, 3 * STEPS, 2 * STEPS + 2, call=2, how="sought", ends=True)
    assert exact(run) == [(0, True, False, 96), (1, True, True, 100), (2, True, True, 36)]


def test_a_loop_of_the_scripts_own_begins_anew_in_each_round(run):
    """It looks at an epoch of the data before it trains."""
    for round_ in range(2):
        for rank in range(2):
            run.work(round_, rank, 2, call=-1)
            read(STEPS, rank=rank, size=2, trains=False, ends=True)
        begin, how = ((STEPS, "next"), (STEPS + 1, "resumed"))[round_]
        all_read(run, round_, 2, STEPS + 2 + 2 * round_, begin, how=how, ends=round_ == 1)
    assert exact(run) == [(0, True, True, 100), (1, True, True, 100)]


def edit(path, function):
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(function([json.loads(line) for line in lines])))


def test_samples_that_could_not_be_read_are_named_and_count_as_neither(run):
    data = Data()
    data.tolerant = 1
    all_read(run, 0, 2, STEPS, data=data, ends=True)
    all_read(run, 0, 2, 2 * STEPS, STEPS, data=data, ends=True, job=2)
    for source, index in ((1, 17), (1, 3), (1, 17), (0, 5)):
        ledger.left_out(source, index)
    for report in examine(run.folder).epochs:
        assert report.exact and report.complete
        assert (report.consumed, report.expected) == (98, 98)
        assert (report.left_out, report.left_out_count) == ((3, 17), 2)


def test_samples_that_were_lost_are_named(run):
    all_read(run, 0, 2, STEPS, ends=True)

    def without_step_1(records):
        room, head, whole, *rest = records
        first, last = {**whole, "taken": 1, "done": 1}, {**whole, "step": 2, "begin": 64 + 16}
        last |= {"taken": whole["taken"] - 2, "done": whole["taken"] - 2}
        return [json.dumps(r) + "\n" for r in (room, head, first, last, *rest)]

    edit(run.file(0, 1), without_step_1)
    (report,) = examine(run.folder).epochs
    begin, end = share_of_step(1, SAMPLES, BATCH, 1, 2)
    wanted = Order(samples=100, seed=5, shuffle=True).indices(0, begin, end)
    assert report.missing == tuple(wanted)
    assert not report.duplicates and not report.exact


def test_samples_that_were_read_twice_are_named(run):
    all_read(run, 0, 1, STEPS, ends=True)

    def with_step_2_again(records):
        again = {**records[-1], "step": 2, "begin": 64, "count": 32, "taken": 1, "done": 1}
        return [json.dumps(r) + "\n" for r in (*records, again)]

    edit(run.file(0, 0), with_step_2_again)
    (report,) = examine(run.folder).epochs
    wanted = Order(samples=100, seed=5, shuffle=True).indices(0, 64, 96)
    assert report.duplicates == tuple(wanted[:20])
    assert (report.duplicate_count, report.exact) == (32, False)


def test_a_worker_whose_file_is_missing_is_named(run):
    all_read(run, 0, 3, STEPS, ends=True)
    run.file(0, 1).unlink()
    report = examine(run.folder)
    assert not report.exact
    assert report.no_tape == ("worker 1 of round 0 of job 1",)
    assert report.epochs[0].missing_count == 11 + 11 + 11 + 1


def test_workers_that_train_apart_are_told_apart(run):
    for rank in range(2):
        run.work(0, rank, 2)
        read(STEPS, rank=0, size=1, ends=True)
    reports = examine(run.folder).epochs
    assert [r.data for r in reports] == ["data0", "data0 (worker 1)"]
    assert all(r.exact and r.complete for r in reports)


def test_a_pipeline_is_known_by_position(run):
    run.work(0, 0, 1)
    read(STEPS, rank=0, size=1, data=Data(is_stream=True), ends=True)
    assert [(r.by_position, r.exact) for r in examine(run.folder).epochs] == [(True, True)]


def test_a_line_that_a_killed_worker_left_half_written_is_none(run):
    all_read(run, 0, 1, STEPS, ends=True)
    with run.file(0, 0).open("a") as file:
        file.write('{"pass":0,"epo')
    assert exact(run) == [(0, True, True, 100)]


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda file: file.write_text("hello\n"), "byte 0"),
        (lambda file: file.write_bytes(file.read_bytes() + bytes(128) + b"\n"), "byte 640"),
        (lambda file: file.write_text(file.read_text().replace('"call"', '"cell"')), "byte 128"),
        (lambda file: file.write_text(file.read_text().replace('"by":"s', '"by":"x')), "byte 128"),
        (lambda file: file.write_text(file.read_text().replace('"size":2', '"size":3')), "other"),
        (lambda file: file.with_name("notes.txt").write_text(""), "notes.txt"),
        (lambda file: file.write_text(file.read_text()[384:]), "byte 0"),
    ],
)
def test_files_that_are_torn_or_foreign_are_refused(run, spoil, what):
    all_read(run, 0, 2, STEPS, ends=True)
    assert exact(run) == [(0, True, True, 100)]
    spoil(run.file(0, 1))
    with pytest.raises(TfrunError, match="TFRUN-611") as raised:
        examine(run.folder)
    assert what in str(raised.value)


def test_data_that_changed_between_rounds_is_refused(run):
    all_read(run, 0, 1, STEPS, ends=True)
    all_read(run, 1, 1, 2 * STEPS, STEPS, data=Data(seed=6), how="resumed")
    with pytest.raises(TfrunError, match=r"TFRUN-611.*seed is 5 in round 0, 6 in round 1"):
        examine(run.folder)


def test_a_run_without_a_ledger_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"TFRUN-610.*no ledger"):
        examine(tmp_path)
    with pytest.raises(UsageError, match=r"TFRUN-610.*no such run"):
        examine(tmp_path / "nowhere")


@pytest.mark.parametrize("size", [0, 64, 128, 200, 384, 500])
def test_over_a_full_disk_the_lines_wait_for_room(run, caplog, size):
    run.work(0, 0, 1)
    with no_file_beyond(size):
        tape = read(STEPS - 1, rank=0, size=1)
        if size < 128:
            assert exact(run) == []  # not even the mark has room
        (lacking,) = examine(run.folder).lacking
        assert lacking.startswith("worker 0 of round 0 of job 1: ")
        assert size < 128 or "the disk was full: " in lacking
        assert not examine(run.folder).exact
    tape.taken(0, STEPS - 1)
    ledger.settle()
    assert exact(run) == [(0, True, True, 100)]
    assert not examine(run.folder).lacking
    told = [record.getMessage().partition(":")[0] for record in caplog.records]
    again = "the ledger is written again, and lacks nothing"
    assert told == ["the ledger is not written for now", again]


def test_a_disk_that_stays_full_stops_nothing(run, caplog):
    run.work(0, 0, 1)
    run.file(0, 0).parent.mkdir()
    run.file(0, 0).symlink_to("/dev/full")  # not followed: that is no better
    read(STEPS, rank=0, size=1, ends=True)
    (record,) = caplog.records
    assert "the ledger is not written for now" in record.getMessage()


def test_without_the_option_nothing_is_written(run):
    run.work(0, 0, 1, job=0)
    read(STEPS, rank=0, size=1, ends=True)
    assert not (run.folder / "ledger").exists()


def spans(*pairs):
    return np.array(pairs, np.int64).reshape(-1, 2)


def test_what_is_uncovered_and_what_is_doubled():
    made = spans((2, 4), (3, 5), (8, 12))
    missing, twice = compared(spans((0, 10)), made)
    assert (missing.tolist(), twice.tolist()) == ([[0, 2], [5, 8]], [[3, 4]])
    assert compared(spans((0, 4), (6, 8)), spans())[0].tolist() == [[0, 4], [6, 8]]
    assert compared(spans((0, 4)), spans((4, 9)))[0].tolist() == [[0, 4]]
    assert compared(spans(), spans((0, 9), (1, 2), (3, 4)))[1].tolist() == [[1, 2], [3, 4]]
    assert [found.tolist() for found in compared(spans(), spans())] == [[], []]


def test_random_histories_are_counted_as_by_hand():
    rng = np.random.default_rng(0)
    for _ in range(200):
        begins = rng.integers(0, 30, 8)
        made = np.stack([begins, begins + rng.integers(1, 9, 8)], axis=1)
        counts = np.zeros(50, int)
        for begin, end in made:
            counts[begin:end] += 1

        def positions(found):
            return [p for begin, end in found.tolist() for p in range(begin, end)]

        missing, twice = compared(spans((0, 40)), made)
        assert positions(twice) == np.flatnonzero(counts > 1).tolist()
        gaps = [p for p in np.flatnonzero(counts == 0).tolist() if p < 40]
        assert positions(missing) == gaps
