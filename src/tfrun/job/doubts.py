"""Warnings about what a job does that is probably not what was meant, though nothing fails.

A worker reports one by its code; the job believes it when all workers that run the script have, or
when it says that it alone can know. A person is told then and once more at the end. With --strict
the job fails instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tfrun.job.errors import CODES
from tfrun.job.exits import EXIT_STRICT

REPORT = "doubt"


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A doubt that is believed.

    Attributes:
      code: a key of `CODES`.
      text: what is done, and what to do instead.
    """

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"

    @property
    def error(self) -> dict[str, Any]:
        """The report of a failure that --strict makes of it."""
        text = str(self)
        return {
            **{"type": "", "message": text, "traceback": text, "code": self.code},
            **{"exit_code": EXIT_STRICT, "strict": True},
        }


@dataclass(frozen=True, kw_only=True)
class Doubts:
    """What workers have reported.

    Attributes:
      by: the tasks that have reported each code.
      told: those that a person has been told of.
    """

    by: Mapping[str, frozenset[str]] = field(default_factory=dict)
    told: tuple[Doubt, ...] = ()

    def reported(
        self, task: str, report: Mapping[str, Any], scripts: Collection[str]
    ) -> tuple[Doubts, Doubt | None]:
        """Takes a report in; returns the doubt too, once it is believed.

        Args:
          task: who reports.
          report: "code" and "text"; "alone" when no other worker could know.
          scripts: the tasks that run the script.
        """
        code = report.get("code")
        if code not in CODES or any(doubt.code == code for doubt in self.told):
            return self, None
        tasks = self.by.get(code, frozenset()) | {task}
        self = replace(self, by={**self.by, code: tasks})
        if not (report.get("alone") is True or tasks >= set(scripts)):
            return self, None
        doubt = Doubt(code=code, text=str(report.get("text")))
        return replace(self, told=(*self.told, doubt)), doubt
