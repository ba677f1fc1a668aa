"""An agent's claim on a place for checkpoints in object storage; see claims.py."""

from __future__ import annotations

import errno

from tfrun.checkpoint import claims
from tfrun.job.errors import TfrunError
from tfrun.storage.lease import Lease
from tfrun.storage.objects import Objects


class RemoteClaim:
    """An agent's claim on such a place, as `claims.Claim`; for threads that may wait."""

    def __init__(self, where: str, agent: str) -> None:
        self._lease = Lease(Objects(where, patience=claims.SAVE_SECONDS / 3), claims.PREFIX + agent)

    def acquire(self) -> bool:
        """Returns False as long as an agent of this name, of a job before, may not have ended.

        Raises:
          OSError: the storage cannot be used.
        """
        try:
            return self._lease.acquire()
        except TfrunError as error:
            raise OSError(errno.EIO, error.what) from error

    def holders(self) -> list[str]:
        """Who is waited for, for people."""
        return [f"an agent, {self._lease.watch.who}"]

    @property
    def holds(self) -> bool:
        """False where another one has taken it. Raises OSError as above."""
        try:
            return self._lease.holds
        except TfrunError as error:
            raise OSError(errno.EIO, error.what) from error

    def release(self) -> None:
        self._lease.release()
