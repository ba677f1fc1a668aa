from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys

import pytest

from tfrun.process import allocator

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")

MAPS_A_MEGABYTE = """
import ctypes, sys
from tfrun.process import allocator

class Info(ctypes.Structure):
    _fields_ = [(f"field{i}", ctypes.c_size_t) for i in range(10)]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.malloc.restype = ctypes.c_void_p
if "patch" in sys.argv:
    libc.mallopt(-3, 128 << 10)
if "undo" in sys.argv:
    assert allocator.keep_memory(libc.mallopt)
before = libc.mallinfo2().field3  # hblks: regions that were mapped for one allocation each
kept = [libc.malloc(ctypes.c_size_t(1 << 20)) for _ in range(8)]
print(libc.mallinfo2().field3 - before)
"""


def mapped(*arguments: str, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", MAPS_A_MEGABYTE, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return int(done.stdout)


def test_environment_leaves_the_users_own_alone() -> None:
    assert allocator.environment({"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}) == {}


@glibc
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
def test_environment_keeps_buffers_on_the_heap() -> None:
    assert mapped() == 8
    assert mapped(**allocator.environment({})) == 0


@glibc
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
def test_undoing_tensorflows_threshold() -> None:
    assert mapped("patch") == 8
    assert mapped("patch", "undo") == 0


def test_older_glibc_accepts_less() -> None:
    calls = []

    def mallopt(option: int, size: int) -> int:
        calls.append((option, size))
        return int(option == -1 or size <= 32 << 20)

    assert allocator.keep_memory(mallopt)
    assert calls == [(-3, 2**31 - 1), (-3, 32 << 20), (-1, 2**31 - 1)]


def test_importing_it_does_not_import_tensorflow() -> None:
    code = "import sys, tfrun.process.allocator; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


FREES = """
import ctypes
from tfrun.process import allocator

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def fresh():
    blocks = [libc.malloc(ctypes.c_size_t(480)) for _ in range(100)]
    for block in blocks:
        ctypes.memset(block, 1, 480)
    return blocks

def filled(blocks):
    for block in blocks:
        libc.free(block)
    return sum(ctypes.string_at(block + 32, 16) == b"*" * 16 for block in blocks)

blocks, others = fresh(), fresh()
with allocator.filling_freed_memory():
    inside = filled(blocks)
print(inside > 80, filled(others))
"""


@glibc
def test_what_is_freed_is_overwritten_in_the_block_and_not_after_it() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_PERTURB_"}
    done = subprocess.run(
        [sys.executable, "-c", FREES], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True 0\n"


def test_threads_that_take_turns_share_a_heap() -> None:
    (tunables,) = allocator.environment({}, takes_turns=True).values()
    assert "glibc.malloc.arena_max=1" in tunables.split(":")
    assert "arena_max" not in "".join(allocator.environment({}).values())
