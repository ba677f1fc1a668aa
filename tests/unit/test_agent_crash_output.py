"""What is told of a fatal signal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tfrun.agent import output_streams

DUMP = """Fatal Python error: Segmentation fault

Thread 0x1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread 0x2 (most recent call first):
  File "/x/site-packages/tensorflow/python/framework/constant_op.py", line 108 in convert
  File "/x/site-packages/tensorflow/python/ops/variables.py", line 203 in __call__
  File "/home/me/train.py", line 12 in build
  File "/home/me/train.py", line 40 in <module>
  File "<string>", line 1 in <module>

Extension modules: numpy, h5py (total: 2)
"""


def test_where_it_happened_and_the_scripts_line() -> None:
    assert output_streams.in_short(DUMP).splitlines() == [
        "Fatal Python error: Segmentation fault",
        '  File "/x/site-packages/tensorflow/python/framework/constant_op.py", line 108 in convert',
        '  File "/home/me/train.py", line 12 in build',
    ]


def test_a_thread_without_python_and_a_dump_that_is_cut_off() -> None:
    main = DUMP.replace("Current thread 0x2", "Thread 0x2")
    assert '"/home/me/train.py", line 12' in output_streams.in_short(main)
    for end in range(len(output_streams.CRASH), len(DUMP), 7):
        assert output_streams.in_short(DUMP[:end]).startswith(output_streams.CRASH)


def test_it_is_what_python_writes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    lines = ["import ctypes, faulthandler", "faulthandler.enable()", "ctypes.string_at(0)"]
    script.write_text("\n".join(lines))
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    short = output_streams.in_short(ended.stderr[ended.stderr.index(output_streams.CRASH) :])
    assert "Segmentation fault" in short and 'train.py", line 3 in <module>' in short
