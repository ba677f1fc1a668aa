"""`--overlap`: begins sums while the backward pass still runs.

The gradients of the last layers are there first. They are handed to a thread, which talks to the
other workers while TensorFlow computes the rest; the step asks for all sums at its end, before
anything is updated. All collectives of the process go through this one thread: so all workers have
them in the same order, which is that of the graph.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from tfrun.collective.collective import Collective

# A pack has at least so many bytes. Each takes some milliseconds more than its bytes do: so there
# are not many.
PACK_BYTES, PACKS = 2 << 20, 12


def pays(members: Collective) -> bool:
    """Whether sums should begin while TensorFlow computes.

    Through a machine's memory they take processor time, and hardly any waiting.
    """
    return members.crosses


def packs_of(
    sizes: Sequence[int | None], least: int = PACK_BYTES, most: int = PACKS
) -> list[list[int]]:
    """Which tensors are summed together, in the order in which their sums begin.

    Args:
      sizes: bytes of each tensor, in the order of the layers; None: not known beforehand.
      least: a pack has so many bytes, but for the last one.
      most: how many packs there are at most, or one more.

    Returns:
      Positions, the last ones first. What has no known size comes with the last pack.
    """
    limit = max(least, sum(filter(None, sizes)) // most)
    packs: list[list[int]] = [[]]
    held = 0
    for i, size in reversed(list(enumerate(sizes))):
        if size is None:
            continue
        if held >= limit:
            packs.append([])
            held = 0
        packs[-1].append(i)
        held += size
    packs[-1] += [i for i, size in enumerate(sizes) if size is None]
    return packs


class OneThread:
    """Runs functions one after the other.

    A daemon: a process that ends waits for no peer.

    Args:
      name: the thread's.
    """

    def __init__(self, name: str = "tfrun-collective") -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Has `function` called after all that were submitted before."""
        future: Future[Any] = Future()
        self._work.put((future, function))
        return future

    def _run(self) -> None:
        while True:
            future, function = self._work.get()
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            del future, function  # they hold on to gradients
