"""`tfrun [options] SCRIPT …`: runs a job on this machine, or on others over SSH."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfrun.checkpoint import writable_directory
from tfrun.cli import checkpoint_place, previous_job, show_job
from tfrun.cli.host_options import remote_of, stated_cluster, stated_hosts
from tfrun.cli.options import Options
from tfrun.cli.shared_options import say
from tfrun.cluster.cluster_file import hosts_of, is_local, workers_of
from tfrun.cluster.external_cluster import (
    external_aside,
    external_name,
    external_seed,
    external_sizes,
    external_tf_config,
    is_server,
)
from tfrun.cluster.host_lists import Host
from tfrun.cluster.pods import health_port
from tfrun.cluster.tasks import assign_tasks
from tfrun.job import lock, options_without_effect, start_checks
from tfrun.job import run_dir as run_dir_module
from tfrun.job.errors import UsageError
from tfrun.job.spec import JobSpec, WorkerRange
from tfrun.launcher.local.agent_process import ALONE, AgentProcess, slots_alone
from tfrun.storage.url import is_url

if TYPE_CHECKING:
    from tfrun.control.protocol.tls import Certificate
    from tfrun.job.bench_results import BenchSettings
    from tfrun.launcher.backend import Job
    from tfrun.launcher.join.serve import Serving
    from tfrun.launcher.scheduler import Place

    MakeJob = Callable[[JobSpec, AgentProcess | None], Job]

THREADS = (
    "--replicas gives the same bits on another number of workers if these have as many threads "
    "each: set --threads-per-worker"
)


def run(options: Options, serving: Serving | None = None) -> int:
    """Runs the job and returns its exit code."""
    spec, asked = options.spec, options.workers
    fixed = stated_cluster(options)
    machines = stated_hosts(options.hosts, options.hostfile)
    if fixed and not is_local(fixed):
        machines = hosts_of(fixed)
    place = None if machines or fixed or serving or "TF_CONFIG" in os.environ else _place()
    certificate = _certificate(options.tls_cert, options.tls_key, place or serving)
    slots = workers_of(fixed) if fixed else sum(host.slots for host in machines) or 1
    run_dir, checkpoint_dir = spec.run_dir, spec.checkpoint_dir
    if place:
        from tfrun.launcher import scheduler

        slots = scheduler.slots_of(place, asked.high if asked else None)
        run_dir = run_dir or scheduler.run_dir_of(place, spec.program.name)
        os.environ.update(scheduler.task_environment(place, os.environ))
    wanted = asked or WorkerRange.parse(str(slots))
    spec = replace(spec, workers=wanted, ps=fixed.count("ps") if fixed else spec.ps)
    remote = remote_of(machines, options, os.environ)
    external = external_tf_config(
        os.environ, workers=(asked.low, asked.high) if asked else None, ps=spec.ps or None
    )
    aside = external_aside(external)
    if aside is not None:  # the directory may be shared with the chief, who alone saves there
        checkpoint_dir = checkpoint_dir or (run_dir and str(Path(run_dir, "checkpoints")))
        run_dir = run_dir and str(Path(run_dir, f"{aside.type}-{aside.index}"))
    # The hosts look for themselves as well, and a server runs nothing of the script.
    if (not machines or not options.remote_dir) and not (external and is_server(external)):
        start_checks.check_program(spec.program)
    if (machines or fixed) and external:
        raise UsageError(
            "TFRUN-107",
            "TF_CONFIG states a cluster, and so do -H, --hostfile or --cluster",
            fix="Unset TF_CONFIG, or leave out the hosts",
        )
    spec = replace(spec, run_dir=run_dir, checkpoint_dir=checkpoint_dir)
    stands = spec
    if external:
        trainers, servers = external_sizes(external)
        everyone = WorkerRange(low=trainers, high=trainers)
        if options.seed is None:
            spec = replace(spec, seed=external_seed(external))
        stands = replace(spec, workers=everyone, ps=servers)
    options_without_effect.check(
        stands,
        elsewhere=bool(machines or place or serving),
        external=bool(external),
        fixed=fixed is not None,
    )
    stays = options_without_effect.whether_it_stays(
        stands, external=bool(external), fixed=fixed is not None
    )
    spec = replace(spec, in_place=stays)
    if spec.scale_batch and spec.strategy == "auto" and not stands.ps:
        spec = replace(spec, batch_times=stands.workers.high)
    if serving and external:
        fix = "Unset TF_CONFIG"
        raise UsageError("TFRUN-107", "TF_CONFIG states another cluster", fix=fix)
    if machines or not (external or place or serving):
        rooms = [(host.name, host.slots) for host in machines] or [("one machine", wanted.high)]
        tasks = assign_tasks(wanted.high, spec.ps, slots_by_host=rooms)
        start_checks.check_crowd([rooms[task.host_index][0] for task in tasks])
    for name in options.variables:
        os.environ.pop(name, None)
    if place and place.is_member:
        from tfrun.launcher.scheduler import serve

        return serve(place, run_dir, spec.timeouts.join_timeout, certificate)
    if options.misplaced and not external and wanted.high == 1:
        say(options.misplaced)
    # A machine that only launches needs no TensorFlow.
    if not machines and (serving is None or serving.slots):
        start_checks.check_tensorflow()
    # Else the chief looks, where it is. In a storage the job's lease is this process's.
    is_here = not (machines or external or place or serving)
    if checkpoint_dir and (is_here or (is_url(checkpoint_dir) and aside is None)):
        writable_directory.check(checkpoint_dir, say)

    def make_job(spec: JobSpec, agent: AgentProcess | None) -> Job:
        if place:
            from tfrun.launcher.scheduler import job_of

            return job_of(place, spec, asked.high if asked else None, certificate)
        if serving:
            from tfrun.launcher.join.serve import serve_job

            return serve_job(spec, serving, certificate, say)
        if machines:
            from tfrun.launcher.ssh.backend import ssh_job

            return ssh_job(spec, machines, remote, fixed)
        from tfrun.launcher.local.backend import local_job

        return replace(local_job(spec, external, fixed, agent), health=health_port(os.environ))

    elsewhere = external or place or serving or fixed
    found = None
    if options.measured and not (elsewhere or spec.ps) and wanted.high > 1:
        found = _measured(machines, wanted.high)
    path = run_dir_module.create(run_dir or None, spec.program.name, time.time())
    with lock.held(path, external_name(external)), contextlib.ExitStack() as stack:
        return _start(
            replace(spec, run_dir=str(path)),
            options,
            make_job,
            stack,
            slots=0 if machines or place or serving else slots_alone(wanted, external),
            saves=aside is None,
            place=place,
            measured=found,
        )


def _measured(machines: Sequence[Host], workers: int) -> BenchSettings | None:
    """What `tfrun bench` has found on these machines."""
    from tfrun.job import bench_results as measured

    hosts = [(host.identity, host.slots) for host in machines]
    return measured.find(measured.machines_of(hosts, workers))


def _place() -> Place | None:
    """Where a scheduler has put this process; what asks it is only loaded when there is one."""
    if not {"SLURM_JOB_ID", "TFRUN_GROUP"} & set(os.environ):
        return None
    from tfrun.launcher.scheduler import place_of

    return place_of(os.environ)


def _certificate(
    cert: str | None, key: str | None, network: Place | Serving | None
) -> Certificate | None:
    """What a control port that others reach over the network shows; None is without TLS."""
    if not (cert or key):
        return None
    from tfrun.control.protocol import tls

    if not network:
        what = "the control port of this job is on no network: loopback, or inside SSH"
        fix = "Leave out --tls-cert and --tls-key"
        raise UsageError("TFRUN-107", what, where="--tls-cert", fix=fix)
    return tls.stated(cert, key)


def _start(
    spec: JobSpec,
    options: Options,
    make_job: MakeJob,
    stack: contextlib.ExitStack,
    *,
    slots: int,
    saves: bool,
    place: Place | None,
    measured: BenchSettings | None,
) -> int:
    """Runs the job in its run directory and says how it went.

    `slots` is for how many workers this machine alone has to do; 0 is for other kinds of jobs. The
    `stack` is closed at the end.
    """
    now, path = time.time(), Path(spec.run_dir)
    saved, goes_on, seed, notices = "", False, spec.seed, []
    where = checkpoint_place.of(path, spec.checkpoint_dir, is_local=bool(slots))
    if not saves:
        saved = where.where
    elif spec.checkpoint_every != "off":
        stack.enter_context(where.taken(spec))
        last = run_dir_module.last_job(path)
        where.begin(fresh=options.fresh, now=now)
        saved, goes_on = where.where, where.has_checkpoints()
        spec = replace(spec, checkpoint_lease=where.lease)
        if goes_on and options.seed is None and type(last.get("seed")) is int:
            seed = last["seed"]  # the same order of samples, and the same dropout, as before
        if goes_on:
            times, notices = previous_job.batch_times(spec, last)
            spec = replace(spec, batch_times=times)
    number = run_dir_module.next_ledger(path) if options.ledger else 0
    folder = options.tensorboard
    keras = str(Path(folder, path.name, "keras").resolve()) if folder else ""
    spec = replace(
        spec, run_dir=str(path), checkpoint_dir=saved, seed=seed, ledger=number, tensorboard=keras
    )
    if measured is not None:
        spec = measured.on(spec)
    run_dir_module.write_job(path, {"started": now, "pid": os.getpid(), **spec.to_json()})
    with stack:
        if saves and saved:
            stack.enter_context(where.held())
        # TensorFlow's import is what everybody waits for: it goes on while the launcher imports.
        agent = AgentProcess(ALONE, spec, slots) if slots else None
        if agent:
            stack.enter_context(contextlib.closing(agent))
        if spec.replicas and spec.threads_per_worker is None:
            notices.append(THREADS)
        backend = os.environ.get("KERAS_BACKEND", "tensorflow")
        if backend != "tensorflow":
            notices.append(f"KERAS_BACKEND={backend} has no effect: Keras runs on TensorFlow here")
        if measured:
            notices.append(f"{measured.used_by(spec)}; --no-measured does without it")
        if saved and saves and not options.fresh:
            notices += where.notices(goes_on=goes_on)
        job = make_job(spec, agent)
        outcome = show_job.run(job, options, now, notices, goes_on=goes_on, saves=saves)
    if (outcome.preempted or outcome.requeue) and place:
        from tfrun.launcher.scheduler import preempted

        if text := preempted(place):
            print(f"tfrun: {text}", file=sys.stderr, flush=True)
    return outcome.exit_code
