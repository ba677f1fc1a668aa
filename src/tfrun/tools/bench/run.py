"""Runs the jobs that measure: one for each way of communicating, and one worker alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.reports import Measured
from tfrun.tools.bench.report import BenchReport, way_of
from tfrun.tools.child_job import QUIET, ChildJob, Say, ends_children_on_signals, failed

MODULE = "tfrun.tools.bench.worker"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What a benchmark measures.

    `where` are the options that say which workers, on which machines, `first` those for one worker
    on the first of them, `ways` the values of --communication to compare. `sizes` of all-reduces,
    and of the `model`'s gradients, are bytes; `batch` is for each worker. `timeout` is of each job.
    """

    where: tuple[str, ...]
    first: tuple[str, ...]
    ways: tuple[str, ...]
    sizes: tuple[int, ...]
    model: int
    batch: int
    steps: int
    folder: Path
    timeout: float


def run_bench(bench: Bench, say: Say) -> BenchReport:
    """Runs it; `say` gets a line for each job.

    Raises:
      TfrunError: TFRUN-401 when no way of communicating works, or one worker alone fails.
    """
    found: dict[str, Measured] = {}
    errors: dict[str, TfrunError] = {}
    with ends_children_on_signals():
        for way in bench.ways:
            say(f"measuring {way}")
            try:
                found[way] = _measured(bench, way, [*bench.where, "--communication", way])
            except TfrunError as error:
                errors[way] = error
        if not found:
            raise next(iter(errors.values()))
        first = next(iter(found.values()))
        say("measuring one worker alone")
        threads = ["--threads-per-worker", str(first.threads)] if first.threads else []
        alone = _measured(bench, "alone", [*bench.first, *threads])
    ways = [way_of(way, measured) for way, measured in found.items()]
    links = [measured.link for measured in found.values() if measured.link]
    return BenchReport(
        workers=first.workers,
        threads=first.threads,
        link=max(links, default=None),
        model=bench.model,
        batch=bench.batch,
        alone=median(alone.step_seconds),
        ways=tuple(sorted(ways, key=lambda way: way.step)),
        failed={way: error.what for way, error in errors.items()},
        gpus=any(measured.gpus for measured in found.values()),
    )


def _measured(bench: Bench, name: str, options: list[str]) -> Measured:
    sizes = ",".join(map(str, bench.sizes))
    numbers = [str(number) for number in (bench.model, bench.batch, bench.steps)]
    command = [*options, *QUIET, "--no-measured", "-m", MODULE, sizes, *numbers]
    with ChildJob(command, bench.folder / name, timeout=bench.timeout, wanted={}) as job:
        code = job.wait()
    found = [reports.of(event) for event in job.events()]
    measured = [report for report in found if isinstance(report, reports.Measured)]
    if code or not measured:
        raise failed(job, code, f"the job that measures {name}")
    return measured[-1]
