"""Restores Python's handlers of SIGTERM, which TensorFlow's server replaces."""

from __future__ import annotations

import signal
import threading


def give_back_sigterm() -> None:
    """Has the handler of SIGTERM that Python knows hear of it again.

    With the coordination service, TensorFlow replaces it in C (preemption_notifier.cc) and does
    nothing with the signal but log it: neither the script's own handler nor the default has its
    effect any more. Python's own record of the handler is not touched by that. Does nothing
    outside the main thread, where Python does not allow it.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
