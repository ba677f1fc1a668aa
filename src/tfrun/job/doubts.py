"""Warnings about what a job does that is probably not what was meant, though nothing fails.

A worker reports one by its code; the job believes it when all workers that run the script have, or
when it says that it alone can know. A person is told then and once more at the end. With --strict
the job fails instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tfrun.job.errors import CODES
from tfrun.job.reports import DoubtRaised, Error


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A doubt that is believed, with one of `CODES`: what is done, and what to do instead."""

    code: str
    text: str

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"

    @property
    def error(self) -> Error:
        """The failure that --strict makes of it."""
        return Error(type="", message=str(self), traceback=str(self), code=self.code)


@dataclass(frozen=True, kw_only=True)
class Doubts:
    """What workers have reported: which tasks, by the code, and what a person was told of."""

    by: Mapping[str, frozenset[str]] = field(default_factory=dict)
    told: tuple[Doubt, ...] = ()

    def reported(
        self, task: str, report: DoubtRaised, scripts: Collection[str]
    ) -> tuple[Doubts, Doubt | None]:
        """Takes a report in; returns the doubt too, once it is believed.

        `scripts` are the tasks that run the script.
        """
        code = report.code
        if code not in CODES or any(doubt.code == code for doubt in self.told):
            return self, None
        tasks = self.by.get(code, frozenset()) | {task}
        self = replace(self, by={**self.by, code: tasks})
        if not (report.alone or tasks >= set(scripts)):
            return self, None
        doubt = Doubt(code=code, text=report.text)
        return replace(self, told=(*self.told, doubt)), doubt
