"""Warnings about what a job does that is probably not what was meant, though nothing fails.

A worker reports one by its code; the job believes it when all workers that run the script have, or
when it says that it alone can know. A person is told then and once more at the end. With --strict
the job fails instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tfrun.job.errors import CODES
from tfrun.job.reports import DoubtRaised


@dataclass(frozen=True, kw_only=True)
class Doubts:
    """What workers have reported: which tasks, by the code, and what a person was told of."""

    by: Mapping[str, frozenset[str]] = field(default_factory=dict)
    told: tuple[DoubtRaised, ...] = ()

    def reported(
        self, task: str, report: DoubtRaised, scripts: Collection[str]
    ) -> tuple[Doubts, DoubtRaised | None]:
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
        return replace(self, told=(*self.told, report)), report
