"""Finds the failure that came first and caused the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tfrun.job import unmatched_call
from tfrun.job.exits import ExitStatus
from tfrun.job.reports import Error

# What TensorFlow raises in a worker whose peer has gone: it is never the cause of itself.
PEER_ERRORS = frozenset(
    {
        *("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"),
        *("PSUnavailableError", "ClosureAbortedError"),  # of TensorFlow's coordinator
    }
)
PEER_PHRASES = (
    "Collective ops is aborted",
    "coordination service",
    "Connection reset by peer",
    "Socket closed",
    "failed to connect to all addresses",
    "heartbeat",
)
# How the host collective fails a graph: by an assertion, because what Python raises in a graph
# comes out as UnknownError, with its traceback in the log.
HOST_PHRASE = "PeerGone: Collective ops is aborted"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One task's failure.

    Attributes:
      task: the task's name, "worker:1"; or an agent's, for a failure of its own.
      time: seconds since the epoch, by the clock of its machine.
      status: how the process ended; None while it has only reported an exception.
      error: the exception as the worker reported it; None where it reported none.
      tail: the last lines of its standard error, without TensorFlow's noise.
      code: a stable error code when the platform itself failed.
      silent: the task said nothing while its peers lost it, and had to be killed.
      strict: the job was ended by --strict, for what the workers do.
      in_a_row: as many restarts without progress had come before it as are allowed; 0 for others.
    """

    task: str
    time: float
    status: ExitStatus | None = None
    error: Error | None = None
    tail: str = ""
    code: str = "TFRUN-401"
    silent: bool = False
    strict: bool = False
    in_a_row: int = 0

    @cached_property
    def follows_from_a_peer(self) -> bool:
        """True when the exception is what TensorFlow raises because *another* worker left."""
        return self.error is not None and is_peer_error(self.error.type, self.error.message)


def is_peer_error(kind: str, message: str) -> bool:
    """True for an exception, of this type, with which TensorFlow says that a peer has gone."""
    if kind in PEER_ERRORS:
        return True
    if unmatched_call.reason_in(message) is not None:
        return False  # nobody has gone
    if kind == "InvalidArgumentError":
        return HOST_PHRASE in message
    return kind == "InternalError" and any(phrase in message for phrase in PEER_PHRASES)


def root_cause(failures: Iterable[Failure]) -> Failure | None:
    """Returns the earliest failure that no peer's end explains, else simply the earliest."""
    by_time = sorted(failures, key=lambda failure: failure.time)
    own = [failure for failure in by_time if not failure.follows_from_a_peer]
    return (own or by_time or [None])[0]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended.

    Attributes:
      exit_code: the launcher's own exit code.
      cause: the first failure, if there was one.
      others: the tasks that ended because of it.
      interrupted: the signal that asked for the end, or "".
      preempted: the state was saved before that, or there was nothing to save.
      saved_step: the step that was saved at the end, for that or because no round could follow.
      unsaved: why the state could not be saved.
      requeue: a machine was lost that the job needs, and the scheduler has others.
      restarts: how often the job began a new round after a failure.
      replaced: how many tasks were started again in the midst of a round.
      doubts: what it did that was probably not meant.
      differing: what is known of machines that have other versions than the first one, or newer
        ones than tfrun was tested with.
    """

    exit_code: int
    cause: Failure | None = None
    others: int = 0
    interrupted: str = ""
    preempted: bool = False
    saved_step: int | None = None
    unsaved: str = ""
    requeue: bool = False
    restarts: int = 0
    replaced: int = 0
    doubts: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
