"""Unwinds the script so that the next round can rerun it."""

from __future__ import annotations


class PeersLeft(BaseException):
    """Raised through a script so that it runs again from the top, in the job's next round.

    Its cause is the error that TensorFlow raised. Not an `Exception`: a script that tries
    everything shall not go on with half of its workers.
    """
