"""Has fsspec look names up in threads that a process does not wait for at its end.

asyncio does so in a pool of threads, all of which Python joins before it exits: where no name
server answers, a job that has given its storage up would stay for most of a minute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class _Unawaited(ThreadPoolExecutor):
    """Runs each call in a daemon thread of its own; asyncio takes no other kind of executor."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="tfrun storage", daemon=True).start()
        return future


def use() -> None:
    """Has the event loop of fsspec, which all its file systems share, use such threads."""
    from fsspec.asyn import get_loop

    get_loop().set_default_executor(_Unawaited())
