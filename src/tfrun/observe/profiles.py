"""Collects the workers' answers to `tfrun profile`. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from tfrun.job import reports
from tfrun.observe.event_lines import counted, name_of


class Answers:
    """The answers of a job's workers to one request.

    Args:
      name: of the profile.
      tasks: who was asked.
    """

    def __init__(self, name: str, tasks: Sequence[str]) -> None:
        self._name, self._tasks = name, list(tasks)
        self._found: dict[str, reports.Profiled] = {}
        self._ended = False

    def take(self, lines: Iterable[str]) -> None:
        """Takes lines of events.jsonl."""
        for line in lines:
            match event := json.loads(line):
                case {"event": "worker_report", "task": task}:
                    match reports.of(event):
                        case reports.Profiled(name=self._name) as report:
                            self._found[task] = report
                # Who was to be traced is gone, or the next round does not know of it.
                case {"event": "job_ended"} | {"event": "round", "state": "leaving" | "stopping"}:
                    self._ended = True

    @property
    def are_complete(self) -> bool:
        """Whether nothing more can come."""
        return self._ended or set(self._tasks) <= set(self._found)

    @property
    def are_good(self) -> bool:
        """Whether every worker has written a trace."""
        return all(not self._problem(task) for task in self._tasks)

    def lines(self) -> Iterator[str]:
        """Yields what a person is told."""
        good = [task for task in self._tasks if not self._problem(task)]
        if good:
            first = max(self._found[task].first for task in good)
            last = min(self._found[task].last for task in good)
            yield f"traces of {counted(len(good), 'worker')}, steps {first + 1} to {last}"
        for task in self._tasks:
            if problem := self._problem(task):
                yield f"{name_of(task)}: no trace: {problem}"

    def _problem(self, task: str) -> str:
        answer = self._found.get(task)
        return "it did not get to these steps" if answer is None else answer.problem
