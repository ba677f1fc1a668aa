"""glibc's allocator, tuned for buffers of megabytes that come and go every step.

By default glibc maps each of them anew and gives them back to the kernel, so that every step
faults its pages in again. TensorFlow's ring all-reduce of 100 MB takes 1.3 times as long with it.
The price is memory: a worker keeps what it once needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator, Mapping

_UNLIMITED = 4294967295
_TUNABLES = {
    "glibc.malloc.mmap_threshold": _UNLIMITED,
    "glibc.malloc.trim_threshold": _UNLIMITED,
    "glibc.malloc.top_pad": 256 << 20,
}

# malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_PERTURB = -6
_INT_MAX = 2**31 - 1
_MMAP_THRESHOLD_LIMIT = 32 << 20  # what glibc before 2.36 accepts at most (HEAP_MAX_SIZE / 2)


def environment(outer: Mapping[str, str], *, takes_turns: bool = False) -> dict[str, str]:
    """The variables that tune the allocator of a worker; read when a process is executed.

    Args:
      outer: the environment so far. Tunables of the user's own stay as they are.
      takes_turns: threads of the worker compute one after the other. With a heap of its own each
        would keep what it has needed, while the others need as much.
    """
    if "GLIBC_TUNABLES" in outer:
        return {}
    tunables = {**_TUNABLES, **({"glibc.malloc.arena_max": 1} if takes_turns else {})}
    return {"GLIBC_TUNABLES": ":".join(f"{name}={value}" for name, value in tunables.items())}


def keep_memory(mallopt) -> bool:
    """Lets the heap serve allocations of any size, or the user's own threshold, and keep them.

    Args:
      mallopt: `int mallopt(int, int)` of the C library.

    Returns:
      Whether the C library accepted it.
    """
    own = (entry.partition("=") for entry in os.environ.get("GLIBC_TUNABLES", "").split(":"))
    sizes = (int(v) for k, _, v in own if k == "glibc.malloc.mmap_threshold" and v.isdigit())
    wanted = min(next(sizes, _UNLIMITED), _INT_MAX)
    accepted = any(
        mallopt(_M_MMAP_THRESHOLD, size) for size in (wanted, min(wanted, _MMAP_THRESHOLD_LIMIT))
    )
    return bool(mallopt(_M_TRIM_THRESHOLD, _INT_MAX)) and accepted


@contextlib.contextmanager
def filling_freed_memory() -> Iterator[None]:
    """Overwrites what is freed in the block, so that nothing there looks alive any more.

    For TensorFlow's profiler (2.18 to 2.21, and newer XLA): TraceMeRecorder::Consume in
    xla/tsl/profiler/backends/cpu/traceme_recorder.cc keeps pointers to events that have ended in
    another thread than they began in, as each collective does, while it puts all into a vector
    that grows. Built with libstdc++ a vector copies such elements when it grows, because a move of
    std::deque may throw; so the pointers lead to freed memory, which is looked at, and written to
    where it still holds the event of a known start. Three of six jobs
    that took 60 to 200 traces of two workers died of it, with "free(): invalid pointer", "double
    free" or by SIGSEGV; with this one of six. What is filled is no such event. It is not all of
    the remedy: some few blocks of each size, which a thread keeps for itself, glibc does not fill.

    Nothing happens without glibc, or where the environment has all memory filled already.
    """
    if platform.libc_ver()[0] != "glibc" or "MALLOC_PERTURB_" in os.environ:
        yield
        return
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_M_PERTURB, 42)  # a byte without its highest bit: times that are not negative
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)
