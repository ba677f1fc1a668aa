"""Who stands still, and who only waits for the one that does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tfrun.agent import hangs
from tfrun.agent.hangs import asked_again, have_answered, hung, wondered_about
from tfrun.job.timeouts import Timeouts
from tfrun.process import progress
from tfrun.process.progress import Phase, Progress, Reading

TIMEOUTS = Timeouts(hang_timeout=30.0, trace_timeout=600.0, pause_timeout=1800.0)


def reading(phase: Phase, seconds_ago: float, step: float = 0.01) -> Reading:
    return Reading(since=1000.0 - seconds_ago, phase=phase, step_seconds=step)


@pytest.mark.parametrize(
    ("seen", "replaced"),
    [
        ({"a": reading(Phase.BETWEEN, 31), "b": reading(Phase.STEP, 31)}, {"a"}),
        ({"a": reading(Phase.BODY, 31), "b": reading(Phase.STEP, 31)}, {"a"}),
        ({n: reading(Phase.WORKERS_START, s) for n, s in (("a", 599), ("b", 601))}, {"b"}),
        ({"a": reading(Phase.BETWEEN, 29), "b": reading(Phase.STEP, 29)}, set()),
        # Everybody waits for somebody: one of them is wrong, and nobody knows which.
        ({"a": reading(Phase.STEP, 59), "b": reading(Phase.STEP, 59)}, set()),
        ({"a": reading(Phase.STEP, 61), "b": reading(Phase.STEP, 61)}, {"a", "b"}),
        # Who waits for one that moves, or that saves, waits as long as that may take.
        ({"a": reading(Phase.STEP, 500), "b": reading(Phase.BODY, 5)}, set()),
        ({"a": reading(Phase.STEP, 1829), "b": reading(Phase.PAUSE, 1799)}, set()),
        ({"a": reading(Phase.STEP, 1829), "b": reading(Phase.PAUSE, 1801)}, {"b"}),
        ({"a": reading(Phase.STEP, 500), "b": reading(Phase.OTHER, 500)}, set()),
        # Long steps take long: ten of them.
        ({"a": reading(Phase.BETWEEN, 99, step=10.0)}, set()),
        ({"a": reading(Phase.BETWEEN, 101, step=10.0)}, {"a"}),
        ({"a": reading(Phase.TRACING, 599), "b": reading(Phase.TRACING, 601)}, {"b"}),
        ({"a": reading(Phase.LOOP, 1799), "b": reading(Phase.LOOP, 1801)}, {"b"}),
        # What the script does for itself has no usual time.
        ({"a": reading(Phase.OTHER, 10_000)}, set()),
        ({}, set()),
    ],
)
def test_who_is_replaced(seen: dict[str, Reading], replaced: set[str]) -> None:
    assert (
        set(hung(seen, now=1000.0, timeouts=TIMEOUTS, alone=True, answered=set(seen))) == replaced
    )


def test_who_waits_for_another_machine_waits_as_long_as_saving_may_take() -> None:
    for seconds, replaced in ((1829, set()), (1831, {"a"})):
        seen = {"a": reading(Phase.STEP, seconds)}
        assert set(hung(seen, now=1000.0, timeouts=TIMEOUTS, alone=False, answered=())) == replaced


def test_a_loop_that_was_not_asked_yet_is_not_replaced() -> None:
    seen = {"a": reading(Phase.BODY, 99), "b": reading(Phase.BODY, 99)}
    found = hung(seen, now=1000.0, timeouts=TIMEOUTS, alone=True, answered={"a"})
    assert set(found) == {"a"}


def test_a_silence_is_believed_when_it_lasts() -> None:
    seen, asked, believed = {"a": reading(Phase.BODY, 16)}, {}, []
    for second in range(5):
        now = 1000.0 + second
        asked["a"] = asked_again(asked.get("a"), seen["a"], now)
        believed.append("a" in have_answered(asked, seen, now))
    assert believed == [False, False, False, True, True]
    seen["a"] = reading(Phase.BODY, 0)  # it has shown that it goes on
    assert not have_answered(asked, seen, 1005.0)
    assert asked_again(asked["a"], seen["a"], 1006.0).times == 1


def test_a_loop_is_asked_before_its_time_is_over() -> None:
    seen = {
        "a": reading(Phase.BODY, 16),
        "b": reading(Phase.BODY, 14),
        "c": reading(Phase.BETWEEN, 16),
    }
    assert wondered_about(seen, now=1000.0, timeouts=TIMEOUTS) == ["a"]


def in_loop(path: Path, do: str) -> Phase:
    """The phase of a loop's body that has done something for a while, and was asked twice."""
    code = (
        "import sys, threading, time\n"
        "from pathlib import Path\n"
        "from tfrun.process.progress import Progress\n"
        "mine = Progress(Path(sys.argv[1]))\n"
        "mine.body_begins(); mine.body_ended(1); mine.body_begins()\n"
        "asked = threading.Event()\n"
        "def ask():\n"
        "    for _ in range(2):\n"
        "        time.sleep(0.2)\n"
        "        mine.look()\n"
        "    asked.set()\n"
        "began = time.monotonic()\n"
        "threading.Thread(target=ask).start()\n" + do + "\nprint(began)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60, check=True
    )
    found = progress.read(path)
    assert found is not None
    moved = found.since > float(done.stdout) + 0.2
    assert moved == ("pass" in do)
    return found.phase


def test_a_loop_that_uses_the_processor_goes_on_and_one_that_waits_does_not(
    tmp_path: Path,
) -> None:
    assert in_loop(tmp_path / "busy", "while not asked.is_set(): pass") is Phase.BODY
    assert in_loop(tmp_path / "stands", "asked.wait()") is Phase.BODY
    # As in an operation of TensorFlow's.
    waits = "exec(compile('asked.wait()', '/lib/tensorflow/python/eager/execute.py', 'exec'))"
    assert in_loop(tmp_path / "waits", waits) is Phase.BODY  # `wait` has a frame of its own
    waits = waits.replace("asked.wait()", "lock.acquire(timeout=0.7)")
    lock = "lock = threading.Lock(); lock.acquire()\n"
    assert in_loop(tmp_path / "waits", lock + waits) is Phase.STEP


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = progress.path_of(tmp_path, "worker:1")
    assert progress.read(path) is None
    mine = Progress(path)
    assert progress.read(path) is None  # nothing shown yet

    def phase() -> Phase:
        found = progress.read(path)
        assert found is not None
        return found.phase

    mine.step_begins()
    assert phase() is Phase.TRACING
    mine.step_returned()
    assert phase() is Phase.BETWEEN
    mine.step_begins()
    assert phase() is Phase.STEP
    mine.step_returned()
    with mine.meanwhile(Phase.STEP):
        assert phase() is Phase.STEP
    assert phase() is Phase.BETWEEN
    with mine.meanwhile(Phase.PAUSE):
        assert phase() is Phase.PAUSE
    assert phase() is Phase.BETWEEN
    mine.step_begins("evaluate")
    assert phase() is Phase.TRACING
    mine.step_returned()
    mine.pause()
    with mine.meanwhile(Phase.STEP):
        assert phase() is Phase.STEP
    mine.begins()
    mine.body_begins()
    assert phase() is Phase.TRACING
    mine.body_ended(1)
    mine.body_begins()
    assert phase() is Phase.BODY
    mine.committed(2)
    assert phase() is Phase.LOOP
    mine.other()
    with mine.meanwhile(Phase.STEP), mine.meanwhile(Phase.PAUSE):
        assert phase() is Phase.OTHER


@pytest.mark.parametrize("content", [b"", b"short", bytes(24), b"\xff" * 24])
def test_a_strange_file_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "progress-a"
    path.write_bytes(content)
    assert progress.read(path) is None


@pytest.mark.parametrize("name", ["LOG_SIGNAL", "LOG_THREADS_SIGNAL"])
def test_a_signal_writes_the_stack(name: str) -> None:
    code = (
        "import os, threading\n"
        "from tfrun.process import stacks\n"
        "stacks.write_on_signal()\n"
        f"def named_function(): os.kill(os.getpid(), stacks.{name})\n"
        "named_function()\n"
        "print('goes on')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "in named_function" in done.stderr
    assert done.stdout == "goes on\n"


def test_one_that_is_stopped_is_replaced_soon_where_others_wait() -> None:
    timeouts, seen = Timeouts(), None
    for second in range(3):
        seen = hangs.stopped_still(seen, 1.5, float(second))
        expected = second == 2  # the machine may have been suspended, and the agent goes on first
        assert seen.is_to_be_replaced(timeouts, now=float(second), alone=False) is expected
    assert seen is not None
    assert not seen.is_to_be_replaced(timeouts, now=2.0, alone=True)
    assert seen.is_to_be_replaced(timeouts, now=1.0 + timeouts.hang_timeout, alone=True)
    limited = hangs.stopped_still(seen, 1.7, 3.0)  # it has run in between
    assert limited == hangs.Stopped(since=3.0, used=1.7)
