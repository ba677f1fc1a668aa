"""The system wants machines back: what that means for the job. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tfrun.control.round_terms import Interrupt, Preempt

# One request may come as several signals: from srun and from slurmstepd, to the group and to us.
ONE_REQUEST_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """What is remembered of signals.

    Attributes:
      asked: when SIGTERM came to the launcher, in seconds; None before.
    """

    asked: float | None = None

    def signalled(self, name: str, now: float) -> tuple[Preempt | Interrupt | None, Preemption]:
        """Takes a signal to the launcher.

        Returns what the round is to be told, and what is remembered. The first SIGTERM wants the
        machine back; a second one, as any other signal, wants the job to end at once.

        Args:
          name: the signal's name.
          now: seconds.
        """
        if name != "SIGTERM":
            return Interrupt(signal=name), self
        if self.asked is None:
            return Preempt(), replace(self, asked=now)
        if now - self.asked < ONE_REQUEST_SECONDS:
            return None, self
        return Interrupt(signal=name), self
