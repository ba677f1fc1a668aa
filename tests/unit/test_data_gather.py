"""What the C library does with the memory of many strings that are freed at once."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

GROUPS = """
import resource, sys
from tfrun.data.sources.gather import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()

def group():
    del strings[:]
    strings.extend([bytes(3000) for _ in range(1500)])

strings = []
group()
group()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    group()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what glibc does")
def test_freed_memory_is_kept():
    """When "otherwise" has few page faults too, `keep_freed_memory` can go."""
    faults = {}
    for how in ("kept", "otherwise"):
        run = [sys.executable, "-c", GROUPS, how]
        done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
        faults[how] = int(done.stdout)
    pages = 10 * 1500 * 3000 // 4096
    assert faults["kept"] < pages / 20 < pages / 2 < faults["otherwise"], faults
