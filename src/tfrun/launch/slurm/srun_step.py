"""`srun tfrun train.py`: every task starts tfrun, and task 0 launches.

The others learn of its control port and the job's token from a file in the run directory, which
all tasks have to see.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tfrun.cluster.slurm import SlurmStep
from tfrun.control.placement import Site
from tfrun.control.protocol.tls import Certificate
from tfrun.job.spec import JobSpec
from tfrun.launch.backend import Job
from tfrun.launch.prestarted.discovery import Discovery
from tfrun.launch.prestarted.group import group_job


def discovery_of(step: SlurmStep, run_dir: Path) -> Discovery:
    """Returns how the tasks of a step find their launcher; the same for all of them."""
    name = f".slurm-{step.job}.{step.step}.{step.restarts}.json"
    why = f"its task has not come, or does not see {run_dir}"
    return Discovery(file=run_dir / name, host=step.here, why=why)


def step_job(spec: JobSpec, step: SlurmStep, certificate: Certificate | None) -> Job:
    """Returns the job of a step whose task 0 this process is.

    Raises:
      UsageError: TFRUN-103 when there are fewer tasks than workers.
    """
    sites = [Site(agent=agent, host=node, slots=1) for agent, node in step.agents]
    discovery = discovery_of(step, Path(spec.run_dir))
    own = {"returns": False, "certificate": certificate}
    return replace(group_job(spec, sites, step.agent, discovery, **own), requeued=step.restarts)
