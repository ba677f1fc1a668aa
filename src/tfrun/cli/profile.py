"""`tfrun profile [RUN] --steps N`: traces of the same steps of all workers, for TensorBoard."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from tfrun.cli.find_run import about_run
from tfrun.cli.params import DIRECTORY, SECONDS, Whole
from tfrun.job import reports
from tfrun.job.profile_request import MOST_STEPS
from tfrun.observe.ask_job import ask
from tfrun.observe.event_lines import counted, name_of
from tfrun.observe.events import end_of_lines, new_lines

ANSWER_SECONDS = 10.0
LOOK_SECONDS = 0.2


@about_run
@click.option("--steps", type=Whole(1, MOST_STEPS), default=20, help="How many steps to trace.")
@click.option("--dir", "folder", **DIRECTORY, help="Where to.  [default: RUN/profile]")
@click.option("--timeout", **SECONDS, default=300.0, help="How long to wait for the traces.")
def profile(run_dir: Path, *, steps: int, folder: str | None, timeout: float) -> int:
    """Trace the same steps of all workers of a running job, for TensorBoard's profiler.

    The machines write where they see DIR. Exit code 1: a worker has written none.
    """
    events = run_dir / "events.jsonl"
    offset = end_of_lines(events)
    where = str(Path(folder).resolve() if folder else run_dir / "profile")
    request = ask(run_dir, "/profile", {"steps": steps, "folder": where}, seconds=ANSWER_SECONDS)
    if "problem" in request:
        click.echo(f"tfrun: {request['problem']}", err=True)
        return 1
    answers, deadline = Answers(request["name"], request["tasks"]), time.monotonic() + timeout
    while not answers.are_complete and time.monotonic() < deadline:
        look = new_lines(events, offset)
        offset = look.offset
        answers.take(look.lines)
        if not look.more:
            time.sleep(LOOK_SECONDS)
    for line in answers.lines():
        click.echo(line)
    click.echo(f"tensorboard --logdir {where}")
    return 0 if answers.are_good else 1


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
