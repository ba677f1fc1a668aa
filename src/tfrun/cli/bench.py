"""`tfrun bench [options]`: how fast these machines are together, and with which settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfrun.cli.params import DIRECTORY, FILE, SECONDS, Whole, context
from tfrun.cli.shared_options import new_folder, reporter, say
from tfrun.job import start_checks
from tfrun.job.errors import UsageError
from tfrun.job.spec import COMMUNICATIONS
from tfrun.tools import picture

if TYPE_CHECKING:
    from tfrun.tools.bench.report import BenchReport

EPILOG = "To pass the jobs any other option of tfrun, set its environment variable."


@click.command(context_settings=context("bench"), epilog=EPILOG)
@click.option(
    "-n",
    "--workers",
    type=Whole(min=2),
    metavar="N",
    help="Number of workers.  [default: 2, or all slots of the hosts]",
)
@click.option(
    "-H", "--hosts", metavar="A,B:2", help="Hosts, over SSH; :2 is the number of workers there."
)
@click.option("--remote-python", metavar="PATH", help="Python on the hosts.")
@click.option("--remote-dir", metavar="DIR", help="Working directory on the hosts.")
@click.option(
    "--communication",
    metavar="A,B",
    help="What to compare: host, ring, nccl.  [default: host,ring]",
)
@click.option(
    "--sizes",
    default="4K,64K,1M,11M,100M",
    metavar="A,B,…",
    help="Sizes of the all-reduces, in bytes.",
)
@click.option(
    "--model",
    default="11M",
    metavar="SIZE",
    help="Size of the gradients of the model that is trained, in bytes.",
)
@click.option("--batch", type=Whole(min=1), default=64, help="Samples per worker and step.")
@click.option("--steps", type=Whole(min=1), default=30, help="Number of timed steps.")
@click.option("--plot", **FILE, help="Where to draw, as PNG.  [default: <run-dir>/bench.png]")
@click.option("--timeout", **SECONDS, default=600.0, help="How long each job may take.")
@click.option(
    "--remember/--forget",
    default=True,
    help="Keep the fastest settings for later jobs with as many workers on these machines.",
)
@click.option("--run-dir", **DIRECTORY, help="Where the jobs write.  [default: tfrun-runs/bench]")
@click.option("--json", "json_file", **FILE, help="Write the report there too.")
def bench(
    *,
    workers: int | None,
    hosts: str | None,
    remote_python: str | None,
    remote_dir: str | None,
    communication: str | None,
    sizes: str,
    model: str,
    plot: str | None,
    remember: bool,
    run_dir: str | None,
    json_file: str | None,
    **rest: Any,
) -> int:
    """Measure all-reduces and scaling between these machines' workers, and say what to use."""
    from tfrun.tools.bench.sizes import parse_sizes

    measured, gradients = parse_sizes(sizes, where="--sizes"), parse_sizes(model, where="--model")
    ways = _ways(communication)
    picture.check(plot)
    if hosts is None:
        start_checks.check_tensorflow()

    from tfrun.tools.bench.report import draw, print_report
    from tfrun.tools.bench.run import Bench, run_bench

    where, first = _machines(workers, hosts, remote_python, remote_dir)
    show = reporter(json_file, print_report)
    folder = new_folder(run_dir, "bench")
    say(f"run directory {folder}")
    report = run_bench(
        Bench(
            where=where,
            first=first,
            ways=ways,
            sizes=measured,
            model=gradients[-1],
            folder=folder,
            **rest,
        ),
        say,
    )
    show(report)
    if remember:
        _remember(report, hosts)
    path = Path(plot) if plot is not None else folder / "bench.png"
    say(picture.drawn(path, lambda figure: draw(figure, report)))
    return 0


def _remember(report: BenchReport, hosts: str | None) -> None:
    """Keeps what was the fastest, for later jobs on the same machines."""
    from datetime import date

    from tfrun.cluster.host_lists import parse_hosts
    from tfrun.job import bench_results as measured
    from tfrun.tools.bench.report import to_remember

    settings = to_remember(report, date.today().isoformat())
    if settings is None:
        return
    there = parse_hosts(hosts) if hosts else ()
    machines = measured.machines_of([(h.identity, h.slots) for h in there], report.workers)
    try:
        measured.keep(machines, settings)
    except OSError as error:
        say(f"not remembered for later jobs: {error}")
        return
    say(f"jobs of {report.workers} workers here use that from now on ({measured.path()})")


def _ways(stated: str | None) -> tuple[str, ...]:
    """The ways of communicating to compare; "auto" is none of its own."""
    known = tuple(way for way in COMMUNICATIONS if way != "auto")
    if stated is None:
        return tuple(way for way in known if way != "nccl")
    ways = tuple(dict.fromkeys(word.strip() for word in stated.split(",")))
    for way in ways:
        if way not in known:
            raise UsageError(
                "TFRUN-105",
                f"{way!r:.60} is not a way of communicating",
                where="--communication",
                expected=f"some of {', '.join(known)}",
            )
    return ways


def _machines(
    workers: int | None, hosts: str | None, python: str | None, directory: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The options of tfrun for all workers, and for one on the first machine."""
    from tfrun.cluster.host_lists import parse_hosts

    given = {"--remote-python": python, "--remote-dir": directory}
    remote = [word for name, value in given.items() if value for word in (name, value)]
    if hosts is None:
        if remote:
            fix = "Name hosts with -H, or leave it out"
            raise UsageError("TFRUN-107", f"{remote[0]} is for other hosts", fix=fix)
        return ("-n", str(workers or 2)), ("-n", "1")
    machines = parse_hosts(hosts)
    if (workers or sum(machine.slots for machine in machines)) < 2:
        raise UsageError(
            "TFRUN-105", "one worker has nobody to talk to", where="-H", expected="two or more"
        )
    count = ("-n", str(workers)) if workers else ()
    name, user = machines[0].name, machines[0].user
    alone = (f"{user}@" if user else "") + (f"[{name}]" if ":" in name else name)
    return ("-H", hosts, *remote, *count), ("-H", alone, *remote, "-n", "1")
