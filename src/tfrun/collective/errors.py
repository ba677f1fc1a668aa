"""The errors of a collective, for the code that calls it."""

from __future__ import annotations


class PeerGone(ConnectionError):
    """A peer is dead, unreachable, or has left: nothing of this collective counts.

    Attributes:
      rank: the peer's rank.
    """

    def __init__(self, rank: int, reason: str) -> None:
        # The first words are those that `job.first_failure` knows a peer's end by.
        super().__init__(f"Collective ops is aborted by: rank {rank} {reason}")
        self.rank = rank


class PeerAbsent(RuntimeError):
    """A peer is well, and does not come to this collective nor to any that follows."""


class Disagreement(RuntimeError):
    """Two workers stand at different collectives: their scripts do not do the same."""


def again(error: BaseException) -> BaseException:
    """The same error once more, for who comes later."""
    if isinstance(error, PeerGone):
        return PeerGone(error.rank, str(error).partition(f"rank {error.rank} ")[2])
    if isinstance(error, Disagreement | PeerAbsent):
        return type(error)(str(error))
    return PeerGone(-1, f"of an earlier failure: {error!r}")
