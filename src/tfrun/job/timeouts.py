"""All waiting times of a job, in one place, with their order checked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tfrun.job.errors import UsageError

# What a person can state.
_OPTIONS = {
    "join_timeout": "--join-timeout",
    "rejoin_timeout": "--rejoin-timeout",
    "launcher_timeout": "--launcher-timeout",
    "preempt_grace": "--grace",
    "hang_timeout": "--hang-timeout",
}
# What another time has to be longer than.
_MEANT = {
    "heartbeat_interval": "between two signs of life of a machine",
    "heartbeat_timeout": "of silence after which a machine counts as lost",
    "stop_grace": "from SIGTERM to SIGKILL",
    "interrupt_grace": "from Ctrl-C to SIGKILL",
    "straggler_grace": "for a worker that leaves last",
}


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Waiting times in seconds.

    Attributes:
      heartbeat_interval: how often an agent reports that it is alive.
      heartbeat_timeout: an agent that was silent for so long is lost.
      launcher_timeout: for how long agents that hear nothing of the launcher train on, and keep
        the state, before they end; as long the launcher waits for them when it hears nobody.
      join_timeout: how long the job waits for its agents and for TensorFlow's import, also for
        agents that were lost and that it cannot do without.
      start_timeout: for how long a job that could start with fewer workers waits for all.
      rejoin_timeout: the same when a machine was lost; may be 0.
      settle: where a machine has come, others may follow for so long.
      grow_after: a round is not interrupted for more workers in its first seconds of training.
      interrupt_grace: from Ctrl-C (SIGINT to the workers) to SIGKILL.
      own_end: how long a script that has failed on one worker may take to end on the others by
        itself, before SIGTERM.
      stop_grace: from SIGTERM to SIGKILL when a peer has failed.
      leave_grace: how long the workers that are left may take, when one has died, to write a
        snapshot and leave, before they are killed for the next round.
      straggler_grace: the same, once one of them has written a snapshot.
      hang_timeout: how long a worker may stand still between two steps before it is replaced;
        at least ten times as long as its steps take.
      trace_timeout: how long the first step of a training, a validation or a prediction may take,
        in which TensorFlow traces and compiles; at least `hang_timeout`.
      pause_timeout: how long saving may take, and what callbacks do when an epoch ends; at least
        `hang_timeout`.
      preempt_grace: how long it may take to save when a machine is preempted, or to go
        on without it.
      agent_exit: how long an agent may take to clean up and leave.
    """

    heartbeat_interval: float = 1.0
    heartbeat_timeout: float = 5.0
    launcher_timeout: float = 30.0
    join_timeout: float = 600.0
    start_timeout: float = 30.0
    rejoin_timeout: float = 0.0
    settle: float = 1.0
    grow_after: float = 5.0
    interrupt_grace: float = 2.0
    own_end: float = 0.5
    stop_grace: float = 1.0
    leave_grace: float = 10.0
    straggler_grace: float = 2.0
    hang_timeout: float = 30.0
    trace_timeout: float = 600.0
    pause_timeout: float = 1800.0
    preempt_grace: float = 25.0
    agent_exit: float = 2.0

    def __post_init__(self) -> None:
        order = (
            ("heartbeat_interval", "heartbeat_timeout"),
            ("heartbeat_timeout", "join_timeout"),
            ("heartbeat_timeout", "launcher_timeout"),
            ("stop_grace", "join_timeout"),
            ("interrupt_grace", "join_timeout"),
            ("straggler_grace", "leave_grace"),
        )
        for name in self.__dataclass_fields__:
            if name == "rejoin_timeout" and self.rejoin_timeout == 0:
                continue
            if not 0 < getattr(self, name) < math.inf:
                what = f"{_OPTIONS.get(name, name)} is {getattr(self, name)} s"
                raise UsageError("TFRUN-108", what, expected="a positive time")
        for smaller, larger in order:
            if getattr(self, smaller) >= getattr(self, larger):
                raise UsageError(
                    "TFRUN-108",
                    f"{_OPTIONS.get(larger, larger)} is {getattr(self, larger):g} s",
                    expected=f"more than the {getattr(self, smaller):g} s {_MEANT[smaller]}",
                )
