"""The interface of whoever shows a person the job."""

from __future__ import annotations

from typing import Protocol

from tfrun.job.reports import Report


class View(Protocol):
    """Shows a person what happens."""

    def output(self, task: str, stream: str, text: str) -> None: ...
    def report(self, task: str, report: Report) -> None: ...
    def notice(self, text: str) -> None: ...
    def mute_errors(self) -> None: ...
    def next_round(self) -> None: ...
