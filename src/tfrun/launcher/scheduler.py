"""Finds which scheduler has started this process, and what follows from it for the job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tfrun.cluster.pods import PodGroup, group_of
from tfrun.cluster.slurm import Allocation, SlurmStep, own_gpus, slurm_place
from tfrun.control.placement import Site
from tfrun.control.protocol.tls import Certificate
from tfrun.job.run_dir import safe_name
from tfrun.job.spec import JobSpec
from tfrun.launcher.backend import Job
from tfrun.launcher.local.backend import local_job
from tfrun.launcher.prestarted import discovery
from tfrun.launcher.prestarted.group import group_job
from tfrun.launcher.prestarted.member import run_member
from tfrun.launcher.slurm.backend import slurm_job
from tfrun.launcher.slurm.commands import hostnames
from tfrun.launcher.slurm.requeue import requeue
from tfrun.process.python import usable_cores

Place = Allocation | SlurmStep | PodGroup


def place_of(environment: Mapping[str, str]) -> Place | None:
    """Returns where a scheduler has put this process; None without one.

    Raises:
      TfrunError: TFRUN-211 or 212 when that cannot be understood.
    """
    return group_of(environment) or slurm_place(environment, hostnames)


def slots_of(place: Place, workers: int | None) -> int:
    """Returns how many workers there is place for.

    Args:
      place: the place.
      workers: the value of -n, None when it is not given.
    """
    if isinstance(place, PodGroup):
        return place.slots * len(place.hosts)
    nodes = place.slots(workers) if isinstance(place, Allocation) else place.nodes
    return sum(slots for _, slots in nodes)


def run_dir_of(place: Place, program: str) -> str:
    """Returns the default run directory: the same one for all tasks, and when it is requeued."""
    if isinstance(place, PodGroup):
        return str(Path("tfrun-runs", f"{safe_name(program)}-{place.agents[0]}"))
    step = f".{place.step}" if isinstance(place, SlurmStep) and place.step != "0" else ""
    return str(Path("tfrun-runs", f"{safe_name(program)}-slurm-{place.job}{step}"))


def job_of(
    place: Place, spec: JobSpec, workers: int | None, certificate: Certificate | None
) -> Job:
    """Returns the job that this process launches.

    Args:
      place: where this process is.
      spec: the job.
      workers: the value of -n, None when it is not given.
      certificate: what the control port shows on a network; None is without TLS.

    Raises:
      UsageError: TFRUN-103 when there is no place for so many workers, TFRUN-212 for pods without a
        secret.
    """
    if isinstance(place, PodGroup):
        pairs = zip(place.agents, place.hosts, strict=True)
        sites = [Site(agent=agent, host=host, slots=place.slots) for agent, host in pairs]
        own = {"returns": True, "address": place.address, "certificate": certificate}
        found = discovery.of_pods(place, certificate)
        return group_job(spec, sites, place.agent, found, **own)
    if isinstance(place, SlurmStep):
        sites = [Site(agent=agent, host=node, slots=1) for agent, node in place.agents]
        found = discovery.of_step(place, Path(spec.run_dir))
        own = {"returns": False, "certificate": certificate}
        return replace(group_job(spec, sites, place.agent, found, **own), requeued=place.restarts)
    if [name for name, _ in place.nodes] == [place.here]:
        return local_job(spec)
    return slurm_job(spec, place, workers=workers, certificate=certificate)


def serve(place: Place, run_dir: str, timeout: float, certificate: Certificate | None) -> int:
    """Takes part in the job that another process launches; returns the exit code.

    Raises:
      TfrunError: TFRUN-306 when that one is not found.
    """
    if isinstance(place, PodGroup):
        shows = certificate.context if certificate else None
        found = discovery.of_pods(place, certificate)
        return run_member(place.agent, place.slots, found, timeout=timeout, shows=shows)
    assert isinstance(place, SlurmStep)
    found = discovery.of_step(place, Path(run_dir).absolute())
    return run_member(place.agent, 1, found, timeout=timeout)


def task_environment(place: Place | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns what one of several tasks on a machine takes of it, where Slurm does not say it."""
    if not isinstance(place, SlurmStep) or place.tasks_here == 1:
        return {}
    own = {}
    if (gpus := own_gpus(environment)) is not None:
        own["CUDA_VISIBLE_DEVICES"] = gpus
    cores = usable_cores()
    if cores == os.cpu_count():  # not bound to cores of its own
        threads = str(max(1, cores // place.tasks_here))
        names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
        own |= {name: environment.get(name, threads) for name in names}
    return own


def preempted(place: Place) -> str:
    """Asks for the job to be run again, and returns what to tell a person; "" for nothing."""
    if isinstance(place, PodGroup):
        return ""  # whoever has started it sees the exit code
    return requeue(place.job)
