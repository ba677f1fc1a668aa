"""Ends a server that was started by hand when its chief has gone: TensorFlow's never does.

The chief listens at its address in the cluster from the moment it has its strategy until its
process ends. So whoever has reached it there once, and does not any more, is not needed any more.
"""

from __future__ import annotations

import enum
import functools
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tfrun.cluster.address import Address
from tfrun.cluster.cluster_spec import TaskKey
from tfrun.cluster.tf_config import parse_tf_config
from tfrun.job.errors import TfrunError
from tfrun.job.settings import WorkerSettings, settings

LOOK_SECONDS = 1.0
COMING_SECONDS = 0.1  # a script that does little listens for half a second only
AWAY_SECONDS = 5.0  # nobody listens there: long enough for a chief that is started anew at once
SILENT_SECONDS = 60.0  # nothing answers: a network that breaks, or a machine that is very busy


class Answer(enum.Enum):
    """What comes of a look at the chief's address."""

    THERE = "there"
    REFUSED = "refused"
    SILENT = "silent"


class ChiefVerdict(enum.Enum):
    """What follows from it."""

    GO_ON = "go on"
    ENDED = "ended"
    NEVER_CAME = "never came"


@dataclass(frozen=True, kw_only=True)
class ChiefWatch:
    """What is known of the chief; times are those of one clock, in seconds.

    Attributes:
      until: when it has to have come.
      away: for how many seconds nobody may listen there.
      seen: when it was there last; None before it has come.
      answered: when its machine answered last, if only by refusing.
    """

    until: float
    away: float = AWAY_SECONDS
    seen: float | None = None
    answered: float = 0.0

    def after(self, answer: Answer, now: float) -> tuple[ChiefWatch, ChiefVerdict]:
        """Returns what is known after a look, and what follows."""
        if answer is Answer.THERE:
            return replace(self, seen=now, answered=now), ChiefVerdict.GO_ON
        if self.seen is None:
            return self, ChiefVerdict.NEVER_CAME if now >= self.until else ChiefVerdict.GO_ON
        refused = answer is Answer.REFUSED and now - self.seen >= self.away
        watch = replace(self, answered=now) if answer is Answer.REFUSED else self
        silent = now - watch.answered >= max(SILENT_SECONDS, self.away)
        return watch, ChiefVerdict.ENDED if refused or silent else ChiefVerdict.GO_ON


@dataclass(frozen=True, kw_only=True)
class Chief:
    """Where the chief is, for how many seconds to wait for it, and for how many when it is gone."""

    address: Address
    seconds: float
    away: float = AWAY_SECONDS


def chief_to_await(mine: WorkerSettings, tf_config: str) -> Chief | None:
    """Returns the chief whose end is this server's; None where somebody else ends the server.

    A coordinator that the cluster does not name has no address: nobody can see its end.
    """
    cluster = parse_tf_config(tf_config).cluster
    if mine.await_chief is None or not cluster.count("chief"):
        return None
    return Chief(
        address=cluster.address(TaskKey(type="chief", index=0)),
        seconds=mine.await_chief,
        away=AWAY_SECONDS if mine.chief_away is None else mine.chief_away,
    )


def for_this_process() -> Callable[[], None] | None:
    """Returns what ends when this server shall; None where somebody else ends it."""
    chief = chief_to_await(settings(), os.environ.get("TF_CONFIG") or "{}")
    return functools.partial(await_chief, chief) if chief else None


def await_chief(chief: Chief) -> None:
    """Returns when the chief has come and ended.

    Raises:
      TfrunError: TFRUN-303 when it has not come in time.
    """
    watch = ChiefWatch(until=time.monotonic() + chief.seconds, away=chief.away)
    while True:
        watch, verdict = watch.after(_look(chief.address), time.monotonic())
        if verdict is ChiefVerdict.ENDED:
            return
        if verdict is ChiefVerdict.NEVER_CAME:
            what = f"the chief did not come to {chief.address} in {chief.seconds:.0f} s"
            fix = "Start it there, or give it more time with --join-timeout"
            raise TfrunError("TFRUN-303", what, where="TF_CONFIG cluster.chief", fix=fix)
        # There is no event to wait for: the chief is no process of ours.
        time.sleep(COMING_SECONDS if watch.seen is None else LOOK_SECONDS)


def _look(address: Address) -> Answer:
    try:
        socket.create_connection((address.host.strip("[]"), address.port), LOOK_SECONDS).close()
    except ConnectionRefusedError:
        return Answer.REFUSED
    except OSError:
        return Answer.SILENT
    return Answer.THERE
