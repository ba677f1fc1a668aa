"""Decides which silent machines are lost, or whether the launcher is cut off itself. Pure.

One machine that is silent while others are heard is lost after `heartbeat_timeout`. When none of
the round's machines is heard, the launcher's own network has broken, most likely: they train on,
for `launcher_timeout`, and nobody else may go on in their place before they have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tfrun.job.timeouts import Timeouts

MISSED_BEATS = 2  # one may be late


@dataclass(frozen=True, kw_only=True)
class Silence:
    """What is known of silent machines; all times are those of one clock, in seconds.

    Attributes:
      since: when the last of the round's machines was heard, as long as none is.
      spared_until: after that the connections come back one by one: TCP tries the less often the
        longer it was in vain.
    """

    since: float | None = None
    spared_until: float = 0.0

    def after(
        self, now: float, heard: Mapping[str, float], world: Collection[str], timeouts: Timeouts
    ) -> tuple[Silence, frozenset[str]]:
        """Returns what is known now, and the machines that are lost.

        Args:
          now: the time.
          heard: when each machine that is connected was last heard.
          world: those whose workers could train on by themselves.
          timeouts: the job's.
        """
        times = [at for agent, at in heard.items() if agent in world] or list(heard.values())
        last = max(times, default=now)
        silence = self
        if now - last >= MISSED_BEATS * timeouts.heartbeat_interval:
            silence = Silence(since=last, spared_until=self.spared_until)
        elif self.since is not None:
            silence = Silence(spared_until=now + (now - self.since))
        limit = timeouts.heartbeat_timeout
        if silence.since is not None or now < silence.spared_until:
            # A beat more than the agents wait themselves: theirs began with an earlier sign.
            limit = timeouts.launcher_timeout + timeouts.heartbeat_interval
        return silence, frozenset(a for a, at in heard.items() if now - at >= limit)

    def seconds(self, now: float) -> float:
        """For how long nothing has been heard of any machine of the round."""
        return 0.0 if self.since is None else now - self.since


def told_of(seconds: float, machines: Sequence[str], timeouts: Timeouts) -> str:
    """Returns what a person is told when nobody has been heard for some time.

    Args:
      seconds: for how long.
      machines: those that are connected.
      timeouts: the job's.
    """
    until = f"{timeouts.launcher_timeout:.0f} s at most (--launcher-timeout)"
    if len(machines) == 1:
        why = "it or the network in between is down; it may be training on, so the job waits for it"
        return f"nothing has been heard from {machines[0]} for {seconds:.0f} s: {why}, {until}"
    why = "most likely this machine's network is down; they train on, so the job waits for them"
    return f"no machine has been heard from for {seconds:.0f} s: {why}, {until}"
