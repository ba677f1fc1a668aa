"""The thread that writes: never in the way of training, and never silent about trouble."""

from __future__ import annotations

import subprocess
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from checkpoint_state import assert_whole

from tfrun.checkpoint.atomic_store import Store
from tfrun.checkpoint.background_writer import BackgroundWriter

SECONDS = 20


def snapshot(step: int, size: int = 1000):
    arrays = {f"model/w{i}": np.full(size, step * 10.0 + i) for i in range(3)}
    return step, {"key": [0, 1, step], "history": {"loss": [step / 3]}}, arrays


class Blocked(Store):
    """A store whose disk answers when the test lets it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.entered, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.began: list[int] = []

    def write(self, step, *args):
        self.began.append(step)
        self.entered.release()
        assert self.go_on.acquire(timeout=SECONDS)
        return super().write(step, *args)


@pytest.fixture
def said() -> list[str]:
    return []


def test_what_is_submitted_is_written(tmp_path, said):
    store, written = Store(tmp_path), []
    writer = BackgroundWriter(store, said.append, on_written=written.append)
    assert writer.flush(0)
    for step in (1, 2):
        writer.submit(*snapshot(step))
        assert writer.flush(SECONDS)
        assert assert_whole(store.newest()) == step
    assert writer.close()
    assert (said, written) == ([], [1, 2])


def test_what_is_written_is_not_kept_in_memory(tmp_path, said):
    writer = BackgroundWriter(Store(tmp_path), said.append)
    array = np.zeros(1000)
    gone = weakref.ref(array)
    writer.submit(1, {}, {"x": array})
    del array
    assert writer.flush(SECONDS)
    assert gone() is None


def test_training_does_not_wait_and_the_newest_waiting_one_is_written(tmp_path, said):
    store = Blocked(tmp_path)
    writer = BackgroundWriter(store, said.append)
    writer.submit(*snapshot(1))
    assert store.entered.acquire(timeout=SECONDS)
    for step in (2, 3, 4):  # each returns although the disk does not
        writer.submit(*snapshot(step))
    assert not writer.flush(0.01)
    store.go_on.release(2)
    assert writer.flush(SECONDS)
    assert store.began == [1, 4]
    assert [found.step for _, found in store.list()] == [1, 4]
    assert said == []


def test_a_blocked_disk_does_not_delay_the_end(tmp_path, said):
    store = Blocked(tmp_path)
    writer = BackgroundWriter(store, said.append)
    writer.submit(*snapshot(1))
    assert store.entered.acquire(timeout=SECONDS)
    writer.submit(*snapshot(2))
    begin = time.monotonic()
    assert not writer.close(0.05)
    store.close()
    assert time.monotonic() - begin < SECONDS / 2
    assert writer._thread.daemon
    store.go_on.release()
    writer._thread.join(SECONDS)
    assert not writer._thread.is_alive()
    assert store.began == [1]


def test_slow_is_said_once_until_it_is_fast_again(tmp_path, said):
    store = Blocked(tmp_path)
    writer = BackgroundWriter(store, said.append, slow_after=0.05)

    def slow_write(step: int, times: int) -> None:
        writer.submit(*snapshot(step))
        assert store.entered.acquire(timeout=SECONDS)
        assert not writer.flush(0.06)  # that long does it take at least
        for _ in range(times):
            writer.submit(*snapshot(step + 1))
        store.go_on.release()
        assert store.entered.acquire(timeout=SECONDS)

    slow_write(1, times=3)
    assert len(said) == 1
    assert "slow" in said[0] and "since the start of the job" in said[0]
    assert not writer.flush(0.06)
    store.go_on.release()
    assert writer.flush(SECONDS)
    assert len(said) == 1  # step 2 was saved, and as slowly
    slow_write(3, times=1)
    assert len(said) == 1
    writer._slow_after = SECONDS
    store.go_on.release()
    assert writer.flush(SECONDS)
    assert said[1:] == ["Checkpoints are saved again: step 4."]


def test_each_kind_of_trouble_is_said_once_until_it_works_again(small_disk, said):
    store = Store(small_disk)
    writer = BackgroundWriter(store, said.append)

    def write(step: int, size: int = 1000) -> bool:
        writer.submit(*snapshot(step, size))
        return writer.flush(SECONDS)

    assert write(1)
    assert not write(2, size=100_000)  # larger than the disk
    assert not write(3, size=100_000)
    assert len(said) == 1
    assert "No checkpoint is being saved, since step 1 (" in said[0]
    assert "TFRUN-701" in said[0] and "No space left" in said[0] and "Training goes on" in said[0]
    store.close()  # its lock is a file that is open for writing
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert not write(4)
    assert not write(5)
    assert len(said) == 2
    assert "Read-only file system" in said[1] and "since step 1 (" in said[1]
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert write(6)
    assert said[2:] == ["Checkpoints are saved again: step 6."]
    assert write(7)
    assert not write(8, size=100_000)
    assert len(said) == 4
    assert "since step 7 (" in said[3]
    assert writer.close(SECONDS) is False
    assert assert_whole(store.newest()) == 7


def test_a_snapshot_that_cannot_be_saved(tmp_path, said):
    writer = BackgroundWriter(Store(tmp_path), said.append)
    for _ in range(2):
        writer.submit(1, {}, {"x": np.array([None])})
        assert not writer.flush(SECONDS)
    assert len(said) == 1
    assert "ValueError: 'x' cannot be saved" in said[0]
    writer.submit(*snapshot(2))
    assert writer.flush(SECONDS)


def test_nobody_there_to_be_told(tmp_path):
    def say(text: str) -> None:
        raise BrokenPipeError(text)

    writer = BackgroundWriter(Store(tmp_path), say)
    writer.submit(1, {"key": object()}, {})
    assert not writer.flush(SECONDS)
    writer.submit(*snapshot(2))
    assert writer.flush(SECONDS)
    assert writer.close()
