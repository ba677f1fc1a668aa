"""Stacks as faulthandler writes them, of many workers: read, folded, the odd one first."""

from __future__ import annotations

import signal
import subprocess
import sys

from tfrun.cli.stacks import fold, lines, ranks, read

WAITS = """Thread 0x00007f1 (most recent call first):
  File "/x/threading.py", line 5 in wait

Current thread 0x00007f2 (most recent call first):
  File "/x/tf.py", line 30 in quick_execute
  File "train.py", line 3 in <module>
"""
SLEEPS = """Stack (most recent call first):
  File "train.py", line 9 in on_epoch_end
  File "train.py", line 3 in <module>
"""


def test_the_main_thread_comes_first_and_the_oldest_call():
    first, second = read(WAITS)
    assert [frame.rpartition(" in ")[2] for frame in first] == ["<module>", "quick_execute"]
    assert [frame.rpartition(" in ")[2] for frame in second] == ["wait"]


def test_equal_stacks_are_folded_and_the_rarest_comes_first():
    texts = {f"worker:{i}": WAITS for i in range(8)} | {"worker:5": SLEEPS, "worker:7": ""}
    groups = fold(texts)
    assert [tasks for tasks, _ in groups[:2]] == [["worker:5"], ["worker:7"]]
    text = "\n".join(lines(groups))
    assert text.startswith('worker 5:\n  File "train.py", line 3, in <module>\n')
    assert "worker 0-4, 6 (6 workers):" in text
    assert "worker 7:\n  (no answer" in text
    assert "wait" not in text
    assert "in wait" in "\n".join(lines(fold(texts, threads=True)))


def test_ranks_are_drawn_together():
    assert ranks(["worker:3"]) == "worker 3"
    assert ranks(["chief:0", "worker:0", "worker:1"]) == "chief 0, worker 0-1 (3 workers)"


def test_a_real_process_is_read():
    code = (
        "import faulthandler, sys, threading, time\n"
        "def waits(): time.sleep(60)\n"
        "threading.Thread(target=waits, daemon=True).start()\n"
        f"faulthandler.register({signal.SIGUSR1}, file=sys.stdout, all_threads=True)\n"
        "def stands(): print('ready', flush=True); time.sleep(60)\n"
        "stands()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        text = ""
        while not text.endswith("in <module>\n"):  # the main thread's last line
            text += process.stdout.readline()
    finally:
        process.kill()
        process.communicate(timeout=30)
    main, *_ = read(text)
    assert [frame.rpartition(" in ")[2] for frame in main] == ["<module>", "stands"]
