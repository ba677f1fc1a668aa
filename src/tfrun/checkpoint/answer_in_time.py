"""Asks a disk or a storage, which may never answer, and waits until a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout  # of its own in Python 3.10
from typing import TypeVar

T = TypeVar("T")

WAIT_SECONDS = 10.0  # for a disk that does not answer


def within(ask: Callable[[], T], seconds: float = WAIT_SECONDS) -> T:
    """Returns what `ask` returns, or raises what it raises; a disk may take for ever to answer it.

    Raises:
      TimeoutError: it has not answered in so many seconds; a thread is left that waits, but does
        not keep the process from ending.
    """
    answer: Future[T] = Future()

    def look() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=look, name="tfrun checkpoint directory", daemon=True).start()
    try:
        return answer.result(seconds)
    except FutureTimeout:
        raise TimeoutError from None
