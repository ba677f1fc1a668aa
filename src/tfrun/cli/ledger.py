"""`tfrun ledger [RUN]`: was every sample of every epoch trained on exactly once?"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfrun.cli.find_run import RUN
from tfrun.cli.params import context
from tfrun.job import run_dir
from tfrun.job.errors import UsageError
from tfrun.observe.event_lines import counted

if TYPE_CHECKING:
    from tfrun.data.ledger.proof import EpochReport, LedgerReport

EPILOG = (
    "RUN is the run directory of a job that ran with --ledger; by default the newest one in "
    "tfrun-runs. Exit code 1: a sample is missing, or was trained on more than once."
)


@click.command(context_settings=context("ledger"), epilog=EPILOG)
@click.option(
    "--json", "as_json", is_flag=True, envvar="TFRUN_LEDGER_JSON", help="Print the report as JSON."
)
@click.argument("run", **RUN)
def ledger(*, run: str | None, as_json: bool) -> int:
    """Prove that a run trained on every sample exactly once."""
    folder = Path(run) if run is not None else run_dir.newest(Path("tfrun-runs"))
    if folder is None:
        raise UsageError(
            "TFRUN-610",
            "there is no run in tfrun-runs here",
            fix="Name the run directory of a job that ran with --ledger",
        )

    from tfrun.data.ledger.proof import examine  # numpy

    report = examine(folder)
    if as_json:
        epochs = [{**dataclasses.asdict(one), "exact": one.exact} for one in report.epochs]
        values = {"run": str(folder), "exact": report.exact, **dataclasses.asdict(report)}
        print(json.dumps({**values, "epochs": epochs}, indent=2))
    else:
        print("\n".join(_lines(report)))
    return 0 if report.exact else 1


def _lines(report: LedgerReport) -> Iterator[str]:
    for epoch in report.epochs:
        yield _line(epoch)
    for worker in report.no_tape:
        yield f"{worker} has left nothing here; its machine may have a run directory of its own"
    for lacking in report.lacking:
        yield f"INCOMPLETE: {lacking}"
    for note in report.not_covered:
        yield f"NOT COVERED: {note}"
    jobs = f", {report.jobs} jobs" if report.jobs > 1 else ""
    rounds, epochs = counted(report.rounds, "round"), counted(len(report.epochs), "epoch")
    covered = "covered " if report.not_covered else ""
    verdict = f"every {covered}sample exactly once"
    verdict = verdict if report.exact else f"NOT {verdict}"
    verdict = verdict if report.epochs else f"no {covered}step was trained to its end"
    if report.lacking:
        verdict = "incomplete: what is missing here may have been trained"
    yield f"{verdict} · {epochs} · {rounds}{jobs}"


def _line(epoch: EpochReport) -> str:
    again = f" (read again, {epoch.reading})" if epoch.reading else ""
    kind = "positions" if epoch.by_position else "samples"
    worlds = ", then ".join(str(size) for size in epoch.worlds) or "0"
    line = f"{epoch.data}{again} · epoch {epoch.epoch} · "
    line += f"{epoch.consumed:,} of {epoch.samples:,} {kind} in {epoch.steps:,} steps"
    line += f" · workers {worlds} · "
    if count := epoch.left_out_count:
        line += f"{count:,} could not be read ({_named(epoch.left_out, count)}) · "
    if epoch.exact:
        return line + ("each exactly once" + ("" if epoch.complete else ", not finished"))
    wrong = []
    if count := epoch.missing_count:
        wrong.append(f"{count:,} MISSING: {_named(epoch.missing, count)}")
    if count := epoch.duplicate_count:
        wrong.append(f"{count:,} MORE THAN ONCE: {_named(epoch.duplicates, count)}")
    return line + ("; ".join(wrong) or f"{epoch.expected:,} were expected")


def _named(samples: tuple[int, ...], count: int) -> str:
    return ", ".join(map(str, samples)) + (", …" if count > len(samples) else "")
