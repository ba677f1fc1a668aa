"""Says how a process ended, and what a person is told about it."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

EXIT_STRICT = 3  # --strict: something is probably not what was meant
EXIT_INTERRUPTED = 130
EXIT_PREEMPTED = 75
EXIT_LOST = 74  # of an agent that has lost its launcher


@dataclass(frozen=True, kw_only=True)
class ExitStatus:
    """The end of a process.

    Attributes:
      code: the exit code, or -N for signal N (as `subprocess` has it).
      out_of_memory: the kernel killed it because memory ran out.
    """

    code: int
    out_of_memory: bool = False

    @classmethod
    def from_wait_status(cls, status: int, *, out_of_memory: bool = False) -> ExitStatus:
        """Reads what `os.waitpid` returns."""
        return cls(code=os.waitstatus_to_exitcode(status), out_of_memory=out_of_memory)

    @property
    def signal_name(self) -> str | None:
        if self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"

    @property
    def shell_code(self) -> int:
        """The exit code as a shell shows it: 128 + N for signal N."""
        return 128 - self.code if self.code < 0 else self.code

    def __str__(self) -> str:
        if self.out_of_memory:
            return "killed by the kernel because memory ran out (SIGKILL)"
        if self.signal_name:
            return f"killed by {self.signal_name}"
        return f"exit code {self.code}"
