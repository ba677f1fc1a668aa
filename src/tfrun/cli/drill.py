"""`tfrun drill [options] SCRIPT …`: does a script's training survive the death of workers?"""

from __future__ import annotations

from typing import Any

import click

from tfrun.cli.params import SECONDS, ScriptCommand, Whole, context
from tfrun.cli.shared_options import last_options, new_folder, reporter, say
from tfrun.cluster.host_lists import parse_hosts
from tfrun.job import start_checks
from tfrun.job.spec import Program, WorkerRange, seed_or_drawn
from tfrun.tools.drill.faults import parse_faults

EPILOG = (
    "The faults are kill (a worker that is not the chief), chief, two (at once), stop (SIGSTOP), "
    "all, random (--kills workers, one after the other), preempt (SIGTERM, then started again), "
    "disk (full; needs root) and cut (the connection to a host; needs -H). To pass the jobs any "
    "other option of tfrun, set its environment variable. Exit code 1: a promise was broken, or a "
    "fault could not be injected."
)


@click.command(cls=ScriptCommand, context_settings=context("drill", script=True), epilog=EPILOG)
@click.option(
    "-n", "--workers", metavar="N|MIN:MAX", help="Number of workers.  [default: 2, or one a host]"
)
@click.option("-H", "--hosts", metavar="A,B:2,…", help="Run the jobs on these hosts, over SSH.")
@click.option(
    "--faults",
    metavar="A,B,…",
    help="Faults to inject.  [default: kill,chief,two,stop,preempt as N allows; -H: cut,preempt]",
)
@click.option(
    "--kills", type=Whole(min=1), default=10, help="How often the fault `random` strikes."
)
@click.option(
    "--deterministic", is_flag=True, help="Make TensorFlow compute the same bits every time."
)
@click.option("--limit", **SECONDS, help="The first new step must come within this time.")
@last_options("drill", "run", seeds="the jobs, and of when and where faults strike")
def drill(
    *,
    script: str,
    script_args: tuple[str, ...],
    workers: str | None,
    hosts: str | None,
    faults: str | None,
    seed: int | None,
    run_dir: str | None,
    json_file: str | None,
    **rest: Any,
) -> int:
    """Run a script undisturbed, then under faults, and compare."""
    program = Program(target=script, args=script_args)
    machines = parse_hosts(hosts) if hosts is not None else ()
    workers = workers or (f"1:{sum(host.slots for host in machines)}" if machines else "2")
    many = WorkerRange.parse(workers).high
    chosen = parse_faults(faults, many, len(machines))
    start_checks.check_program(program)
    start_checks.check_tensorflow()

    from tfrun.tools.drill.report import print_report
    from tfrun.tools.drill.run import Drill, run_drill

    seed = seed_or_drawn(seed)
    show = reporter(json_file, print_report)
    folder = new_folder(run_dir, "drill", program)
    say(f"{many} workers, faults {', '.join(chosen)}, seed {seed}, run directory {folder}")
    report = run_drill(
        Drill(
            program=(script, *script_args),
            workers=many,
            range=workers,
            hosts=("-H", hosts) if hosts else (),
            faults=chosen,
            seed=seed,
            folder=folder,
            **rest,
        ),
        say,
    )
    show(report)
    return 0 if report.ok else 1
