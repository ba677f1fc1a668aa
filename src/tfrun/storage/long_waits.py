"""Tells a person what is waited for, where a storage takes longer than a moment."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

SAY_SECONDS = 3.0


@contextlib.contextmanager
def told(text: str, tell: Callable[[str], object]) -> Iterator[None]:
    """Tells the text once, if what is within takes longer than `SAY_SECONDS`.

    Args:
      text: what is waited for.
      tell: is called in another thread.
    """
    timer = threading.Timer(SAY_SECONDS, tell, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
