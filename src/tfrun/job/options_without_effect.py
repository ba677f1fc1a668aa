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
    # A worker that may hold several replicas calls each step by itself; what compression has
    # rounded off on a worker that dies is lost, and so is what it alone has of an optimizer.
    costs = job.steps_per_execution != "script" or job.compress != "off" or job.shard_optimizer
    nobody = any(_nobody_stays(job, external=external, fixed=fixed))
    return "off" if costs or nobody else "auto"


def _contradictions(job: JobSpec, *, external: bool) -> Iterator[tuple[str, str]]:
    """Yields what cannot be followed, and what to do."""
    if job.max_staleness is not None and not job.ps and not external:
        what = "--max-staleness is about gradients that are sent to parameter servers"
        yield what, "Add --ps N, or leave it out"
    if job.evaluator and external:
        what = "TF_CONFIG states the whole cluster, but --evaluator adds a task to it"
        yield what, "Start one with the role evaluator in TF_CONFIG"
    if job.evaluator and job.checkpoint_every == "off":
        what = "--evaluator evaluates checkpoints, but --checkpoint-every off writes none"
        yield what, "Leave out one of them"
    yield from _unfit_replicas(job)
    compress = f"--compress {job.compress}"
    if job.compress != "off" and job.ps and not external:
        what = f"{compress} is about what workers send each other, and not to parameter servers"
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
        what = f"{stated} needs workers that add up gradients, which servers do with --ps"
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
        why = "a TF_CONFIG states this cluster, so its tasks are not tfrun's to start again"
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
        "shard_optimizer": job.shard_optimizer,
    }
    for option in (option for option, asks in between.items() if asks):
        leave = f"Leave out --{option.replace('_', '-')}"
        if job.ps:
            why = "it is about what workers send each other, but with --ps they send it to servers"
            if option == "scale_batch":
                why = "with --ps each worker computes batches of its own"
            yield option, why, f"{leave}, or --ps"
        elif most == 1:
            yield option, "it is about several workers, but this job has one", f"{leave}, or add -n"
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
            what = "--steps-per-execution, --compress or --shard-optimizer"
            why = f"with {what}, all workers start again when one dies"
            yield "spares", why, "Leave out one of them"
    elif job.spares:
        why = "a spare joins workers that stay in their processes, but here they all start again"
        yield "spares", why, "Leave out --spares, or --no-in-place"
    if job.balance == "auto" and most == 1:
        yield "balance", "one worker holds all replicas", "Leave out --balance, or add -n"
    elif job.balance == "auto" and (job.replicas or by_default(as_asked)) <= least:
        why = "no worker holds a replica that it could give away"
        yield "balance", why, f"Add --replicas, more than {least}, or leave out --balance"
    for why, fix in _nothing_is_shared(job, external=external) if job.shard_optimizer else ():
        yield "shard_optimizer", why, f"{fix}, or leave out --shard-optimizer"
    if job.shard_optimizer and job.overlap == "on":
        why = "with --shard-optimizer, gradients are summed only once all of them are there"
        yield "overlap", why, "Leave out --overlap, or --shard-optimizer"
    if job.ps and job.steps_per_execution != "script":
        why = "with --ps each step is handed to a worker of its own"
        yield "steps_per_execution", why, "Leave out --steps-per-execution, or --ps"
    if job.ps and job.deterministic and most > 1:
        why = "the updates of several workers reach the servers in a different order each time"
        yield "deterministic", why, "Leave out --deterministic, or --ps, or use one worker"
    if job.communication in ("ring", "nccl") and job.overlap == "on":
        why = f"--communication {job.communication} leaves it to TensorFlow to decide what overlaps"
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


def _nothing_is_shared(job: JobSpec, *, external: bool) -> Iterator[tuple[str, str]]:
    """Yields why each worker has all of the optimizer's state, and what else to do.

    The workers find out for themselves too (`shareable_optimizers.why_whole`): a variable may state
    the option for all jobs of a person.
    """
    least, most = job.workers.low, job.workers.high
    if job.communication in ("ring", "nccl"):
        why = f"--communication {job.communication} gives every worker all sums"
        yield why, "Use --communication host"
    if external:
        yield (
            "a TF_CONFIG states this cluster, so its tasks are not tfrun's to start again",
            "Unset TF_CONFIG",
        )
    if job.compress != "off":
        why = f"--compress {job.compress} rounds gradients that only one worker would get"
        yield why, "Leave out --compress"
    if job.in_place == "on":
        why = "--in-place goes on with the remaining workers, so each must hold everything"
        yield why, "Leave out --in-place"
    if least != most:
        why = f"workers of -n {least}:{most} come and go, so each must hold everything"
        yield why, "Write -n N"
    if job.replicas:
        why = f"--replicas {job.replicas} may give a worker several replicas, where it needs one"
        yield why, "Leave out --replicas"
    if job.max_restarts and job.snapshot_every in ("0", "0s"):
        why = "--snapshot-every 0 keeps no copy of the part that only one worker would hold"
        yield why, "Leave out --snapshot-every 0, add --max-restarts 0"


def _nobody_stays(job: JobSpec, *, external: bool, fixed: bool) -> Iterator[tuple[str, str]]:
    """Yields why no worker could go on in its process when another dies, and what else to do."""
    if external:
        yield "a TF_CONFIG states this cluster, and its tasks", "unset TF_CONFIG"
    if fixed:
        why = "--cluster states where each task is, but workers that stay become other tasks"
        yield why, "write -n or -H instead of --cluster"
    if job.ps:
        yield "with --ps a worker's death costs the others nothing", "leave out --ps"
    elif job.workers.high == 1:
        yield "when a job's only worker dies, no other is left", "add -n"
    if job.communication in ("ring", "nccl"):
        why = f"--communication {job.communication} makes all workers start again when one dies"
        yield why, f"leave out --communication {job.communication}"
    if job.strategy == "script":
        yield "--strategy script leaves a script as it is, and its workers alone", "--strategy auto"
    if not job.max_restarts:
        yield "--max-restarts 0 recovers from nothing", "leave out --max-restarts 0"
    if job.balance == "auto":
        yield "--balance auto moves a dead worker's replicas itself", "leave out --balance"
