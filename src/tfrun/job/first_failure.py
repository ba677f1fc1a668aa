"""Which failure came first and caused the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tfrun.job import vain_wait
from tfrun.job.exits import ExitStatus

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
      error: the exception as the worker reported it: "type", "message", "traceback".
      tail: the last lines of its standard error, without TensorFlow's noise.
      code: a stable error code when the platform itself failed.
      silent: the task said nothing while its peers lost it, and had to be killed.
      in_a_row: as many restarts without progress had come before it as are allowed; 0 for others.
    """

    task: str
    time: float
    status: ExitStatus | None = None
    error: dict[str, Any] = field(default_factory=dict)
    tail: str = ""
    code: str = "TFRUN-401"
    silent: bool = False
    in_a_row: int = 0

    @cached_property
    def follows_from_a_peer(self) -> bool:
        """True when the exception is what TensorFlow raises because *another* worker left."""
        return is_peer_error(self.error)


def is_peer_error(error: Mapping[str, Any]) -> bool:
    """True for the report of an exception with which TensorFlow says that a peer has gone."""
    if error.get("type") in PEER_ERRORS:
        return True
    message = str(error.get("message", ""))
    if vain_wait.reason_in(message) is not None:
        return False  # nobody has gone
    if error.get("type") == "InvalidArgumentError":
        return HOST_PHRASE in message
    return error.get("type") == "InternalError" and any(
        phrase in message for phrase in PEER_PHRASES
    )


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
