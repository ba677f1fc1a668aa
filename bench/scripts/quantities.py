"""What a worker notes beside the time of its steps; and how it sets its machine's link.

With BENCH_QUANTITIES, a directory, each rank leaves rank-<rank>.json there: the seconds from the
command to the end of the first step, the most memory that was resident, and of each epoch the bytes
a step that left this machine's interfaces. Workers that share a machine see each other's, too.

BENCH_LINKS is a JSON list of links, each a list of commands. The first one is there from the start,
and for the first epoch; BENCH_LINK_EPOCHS is how many each has then. Each worker sets what its own
machine sends.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

LINKS = json.loads(os.environ.get("BENCH_LINKS", "[]"))
LINK_EPOCHS = int(os.environ.get("BENCH_LINK_EPOCHS", "1"))
_found: dict = {"first_step": 0.0, "sent": []}
_before = 0


def first_step() -> None:
    """The first step has ended now."""
    _found["first_step"] = time.time() - float(os.environ.get("BENCH_START", "nan"))


def epoch_begins(number: int) -> None:
    """Sets the link of this epoch, and looks at the counters."""
    global _before
    if LINKS and number > 1 and (number - 1) % LINK_EPOCHS == 0:
        for command in LINKS[(number - 1) // LINK_EPOCHS]:
            subprocess.run(command, check=True, timeout=20)
    _before = _sent()


def epoch_ends(steps: int) -> None:
    """Looks at the counters again, after so many steps."""
    _found["sent"].append((_sent() - _before) / steps)


def epochs(
    step: Callable[[], object], steps: int, many: int, settle: Callable[[], object] = lambda: None
) -> list[float]:
    """Runs a loop that is no `fit`: one step, and then so many epochs.

    Args:
      step: does one.
      steps: of an epoch.
      many: epochs.
      settle: waits for what is still being computed.

    Returns:
      The milliseconds a step of each epoch.
    """
    step()
    settle()
    first_step()
    times = []
    for number in range(many):
        epoch_begins(number)
        start = time.perf_counter()
        for _ in range(steps):
            step()
        settle()
        times.append((time.perf_counter() - start) / steps * 1000)
        epoch_ends(steps)
    return times


def write(rank: int) -> None:
    """Leaves the numbers of this worker, if somebody wants them."""
    if folder := os.environ.get("BENCH_QUANTITIES"):
        # Not getrusage: that would count what the parent had before this program was there.
        status = Path("/proc/self/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        wanted = int(os.environ.get("BENCH_EPOCHS", "4"))
        numbers = {**_found, "memory": peak * 1024, "epochs": wanted}
        Path(folder, f"rank-{rank}.json").write_text(json.dumps(numbers))


def _sent() -> int:
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    return sum(int(line.partition(":")[2].split()[8]) for line in lines)
