"""Refuses options that contradict each other, or would change nothing in this job.

Of what would change nothing only what stands on the command line counts, because who writes that
expects something. A variable of the environment is stated for all jobs of a person or a site, and
counts where it can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tfrun.job.errors import UsageError
from tfrun.job.replicas import by_default
from tfrun.job.spec import JobSpec


def check(job: JobSpec, *, elsewhere: bool, external: bool = False, fixed: bool = False) -> None:
    """Refuses options that contradict each other, or are stated and would have no effect.

    Args:
      job: with the options that stand on its command line.
      elsewhere: it has, or may have, workers on other machines than the launcher's.
      external: a TF_CONFIG states its cluster; who wrote that starts its tasks, and starts them
        again.
      fixed: its cluster file states the address of each task.

    Raises:
      UsageError: TFRUN-107.
    """
    for what, fix in _contradictions(job, external=external):
        raise UsageError("TFRUN-107", what, fix=fix)
    found = _without_effect(job, elsewhere=elsewhere, external=external, fixed=fixed)
    for option, why, fix in found:
        if option in job.stated:
            name = "--" + option.replace("_", "-")
            raise UsageError("TFRUN-107", f"{name} has no effect here: {why}", fix=fix)


def whether_it_stays(job: JobSpec, *, external: bool = False, fixed: bool = False) -> str:
    """Returns "off" where `in_place` is "auto", and it would have no effect or cost something.

    Arguments as of `check`.
    """
    if job.in_place != "auto":
        return job.in_place
    # A worker that may hold several replicas calls each step by itself; and what compression has
    # rounded off on a worker that dies is lost.
    costs = job.steps_per_execution != "script" or job.compress != "off"
    nobody = any(_nobody_stays(job, external=external, fixed=fixed))
    return "off" if costs or nobody else "auto"


def _contradictions(job: JobSpec, *, external: bool) -> Iterator[tuple[str, str]]:
    """Yields what cannot be followed, and what to do."""
    if job.max_staleness is not None and not job.ps and not external:
        what = "--max-staleness is about gradients that parameter servers get"
        yield what, "Add --ps N, or leave it out"
    if job.evaluator and external:
        what = "TF_CONFIG states the cluster, and --evaluator adds a task to it"
        yield what, "Start one with the role evaluator in TF_CONFIG"
    if job.evaluator and job.checkpoint_every == "off":
        what = "--evaluator evaluates checkpoints, and --checkpoint-every off writes none"
        yield what, "Leave out one of them"
    yield from _unfit_replicas(job)
    compress = f"--compress {job.compress}"
    if job.compress != "off" and job.ps and not external:
        what = f"{compress} is about what workers send each other, and not to servers"
        yield what, "Leave out --compress, or --ps"
    if job.compress != "off" and job.communication not in ("auto", "host"):
        what = f"--communication {job.communication} does not compress, as {compress} asks"
        yield what, "Use --communication host, or leave out one"


def _unfit_replicas(job: JobSpec) -> Iterator[tuple[str, str]]:
    """The same of the number of replicas; 0 states none."""
    stated, least, most = f"--replicas {job.replicas}", job.workers.low, job.workers.high
    if not job.replicas:
        return
    if job.ps:
        what = f"{stated} divides batches among workers that add up, and not with servers"
        yield what, "Leave out --replicas, or --ps"
    elif job.replicas < most:
        what = f"{stated} leaves some of {most} workers without a piece of a batch"
        yield what, f"Use at least {most}, or fewer workers"
    if job.communication in ("ring", "nccl") and not least == most == job.replicas:
        what = f"--communication {job.communication} adds up one replica of each worker"
        yield f"{what}, and {stated} may ask for more", "Use --communication host, or leave out one"


def _without_effect(
    job: JobSpec, *, elsewhere: bool, external: bool, fixed: bool
) -> Iterator[tuple[str, str, str]]:
    """Yields options, why each has no effect, and what to do."""
    least, most = job.workers.low, job.workers.high
    as_asked = job if job.in_place == "on" else replace(job, in_place="off")
    if external:
        why = "a TF_CONFIG states this cluster, and who wrote it starts its tasks again, if anybody"
        asks = {"max_restarts": job.max_restarts > 0}
        asks["snapshot_every"] = job.snapshot_every not in ("0", "0s")
        for option in (option for option, is_asked in asks.items() if is_asked):
            fix = f"Leave out --{option.replace('_', '-')}, or unset TF_CONFIG"
            yield option, why, fix
    if least == most:
        why = f"a job with a fixed {most} workers does not go on with fewer when it loses one"
        yield "rejoin_timeout", why, "Write -n MIN:MAX, or use --join-timeout"
    if not elsewhere:
        why = "there is no network between the launcher and the workers of a job on one machine"
        yield "launcher_timeout", why, "Leave out --launcher-timeout, or add -H"
    # What says "do nothing" has its effect everywhere.
    between = {
        "strategy": job.strategy == "script",
        "scale_batch": job.scale_batch,
        "communication": job.communication != "auto",
        "compress": job.compress != "off",
        "overlap": job.overlap == "on",
        "sync_check": job.sync_check > 0,
    }
    for option in (option for option, asks in between.items() if asks):
        leave = f"Leave out --{option.replace('_', '-')}"
        if job.ps:
            why = "it is about what workers send each other, and with --ps they send it to servers"
            if option == "scale_batch":
                why = "with --ps each worker computes batches of its own"
            yield option, why, f"{leave}, or --ps"
        elif most == 1:
            yield option, "it is about several workers, and this job has one", f"{leave}, or add -n"
    if job.strategy == "script" and job.scale_batch:
        why = "--strategy script leaves a script as it is, and its batches"
        yield "scale_batch", why, "Leave out one of them"
    if job.strategy == "script":
        why = "--strategy script leaves a script as it is, and what it does with its batches"
        yield "replicas", why, "Leave out one of them"
    if job.stays:
        for why, other in _nobody_stays(job, external=external, fixed=fixed):
            if job.in_place == "on":
                yield "in_place", why, f"Leave out --in-place, or {other}"
            if job.spares:
                yield "spares", why, f"Leave out --spares, or {other}"
        if job.spares and whether_it_stays(job) == "off":
            why = "with --steps-per-execution or --compress all start again when one dies"
            yield "spares", why, "Leave out one of them"
    elif job.spares:
        why = "it joins workers that go on in their processes, and these all start again"
        yield "spares", why, "Leave out --spares, or add --in-place"
    if job.balance == "auto" and most == 1:
        yield "balance", "one worker holds all replicas", "Leave out --balance, or add -n"
    elif job.balance == "auto" and (job.replicas or by_default(as_asked)) <= least:
        why = "no worker holds a replica that it could give away"
        yield "balance", why, f"Add --replicas, more than {least}, or leave out --balance"
    if job.ps and job.steps_per_execution != "script":
        why = "with --ps each step is handed to a worker of its own"
        yield "steps_per_execution", why, "Leave out --steps-per-execution, or --ps"
    if job.ps and job.deterministic and most > 1:
        why = "updates of several workers come to the servers in another order each time"
        yield "deterministic", why, "Leave out --deterministic, or --ps, or use one worker"
    if job.communication in ("ring", "nccl") and job.overlap == "on":
        why = f"--communication {job.communication} leaves it to TensorFlow what overlaps"
        yield "overlap", why, "Use --communication host, or leave out --overlap"
    several = by_default(as_asked) or (job.replicas and job.communication in ("auto", "host"))
    if several and job.steps_per_execution != "script" and not job.ps:
        why = "a worker that may hold several replicas calls each step by itself"
        fix = "Leave out --steps-per-execution, or --replicas, --in-place and MIN in -n MIN:MAX"
        yield "steps_per_execution", why, fix
    if job.checkpoint_every == "off":
        for option in ("keep", "checkpoint_dir"):
            fix = f"Leave out --{option.replace('_', '-')}, or --checkpoint-every off"
            yield option, "--checkpoint-every off writes no checkpoints", fix
    if not job.max_restarts and job.snapshot_every not in ("0", "0s"):
        why = "--max-restarts 0 recovers from nothing, so nothing is kept to recover from"
        yield "snapshot_every", why, "Leave out one of them"


def _nobody_stays(job: JobSpec, *, external: bool, fixed: bool) -> Iterator[tuple[str, str]]:
    """Yields why no worker could go on in its process when another dies, and what else to do."""
    if external:
        yield "a TF_CONFIG states this cluster, and its tasks", "unset TF_CONFIG"
    if fixed:
        why = "--cluster states where each task is, and workers that stay become other tasks"
        yield why, "write -n or -H instead of --cluster"
    if job.ps:
        yield "with --ps a worker's death costs the others nothing", "leave out --ps"
    elif job.workers.high == 1:
        yield "one worker leaves none behind", "add -n"
    if job.communication in ("ring", "nccl"):
        why = f"--communication {job.communication} is TensorFlow's, whose workers all start again"
        yield why, f"leave out --communication {job.communication}"
    if job.strategy == "script":
        yield "--strategy script leaves a script as it is, and its workers alone", "--strategy auto"
    if not job.max_restarts:
        yield "--max-restarts 0 recovers from nothing", "leave out --max-restarts 0"
    if job.balance == "auto":
        yield "--balance auto moves what a dead worker has held", "leave out --balance"
