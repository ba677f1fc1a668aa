"""Asks Slurm to run a preempted job again."""

from __future__ import annotations

import re

from tfrun.job.errors import TfrunError
from tfrun.launcher.slurm.commands import call

# A job that was cancelled, or whose time is over, gets the same SIGTERM, and is over.
# While its processes end, its state may be COMPLETING.
GOES_ON = frozenset({"RUNNING", "PREEMPTED"})


def requeue(job: str) -> str:
    """Has a batch job run again from its beginning, and returns what to tell a person.

    Slurm ends what still runs of the job: nothing may be left to do after this.

    Args:
      job: the job's number.
    """
    try:
        reason = why_not(call("scontrol", "show", "job", "--oneliner", job))
        if reason:
            return f"the Slurm job {job} is not requeued: {reason}"
        call("scontrol", "requeue", job)
    except TfrunError as error:
        return f"the Slurm job {job} could not be requeued: {error.what}"
    return f"the Slurm job {job} is requeued, and goes on from here"


def why_not(job: str) -> str:
    """Returns why a job is not to be requeued; "" when it is.

    Args:
      job: what `scontrol show job --oneliner` says of it.
    """
    said = dict(re.findall(r"(?:^|\s)([A-Za-z]+)=(\S*)", job))
    state = said.get("JobState", "unknown")
    if state not in GOES_ON:
        return f"it was cancelled, or its time is over (its state is {state})"
    if said.get("BatchFlag") == "0":
        return "only jobs of sbatch can be"
    if said.get("Requeue") == "0":
        return "it was submitted with --no-requeue"
    return ""
