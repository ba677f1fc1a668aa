"""Slurm's commands: their arguments, and how to read their output. Pure, but for `hostnames`."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from tfrun.cluster.host_ranges import expand, split_list
from tfrun.job.errors import TfrunError
from tfrun.process.python import python_command

SECONDS = 30.0

# What the batch script was given for its tasks. srun would read it, and one agent a node is none
# of these tasks.
_NOT_FOR_AGENTS = re.compile(
    r"SLURM_(NTASKS.*|NPROCS|TASKS_PER_NODE|CPUS_PER_TASK|TRES_PER_TASK|GPUS_PER_TASK|GPU_BIND"
    r"|TRES_BIND|CPU_BIND.*|DISTRIBUTION|CPUS_PER_GPU|GPUS|GPUS_PER_SOCKET|EXCLUSIVE|EXACT"
    r"|KILL_BAD_EXIT|LABELIO|STDINMODE|STDOUTMODE|STDERRMODE|WAIT|UNBUFFEREDIO)"
)
_LABEL = re.compile(r" *([0-9]+): ?(.*)", re.DOTALL)


def srun_agents(nodes: Sequence[str]) -> list[str]:
    """Returns the command that starts one agent on each node, inside an allocation.

    Args:
      nodes: their names.
    """
    return [
        *("srun", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1"),
        f"--nodelist={','.join(nodes)}",
        "--overlap",  # the batch script itself, and other steps, are no reason to wait
        "--cpu-bind=none",  # an agent has all cores of the allocation, and shares them out
        "--mem=0",  # and all of its memory
        "--label",
        # One lost agent is the controller's business, not a reason to end all.
        *("--kill-on-bad-exit=0", "--no-kill", "--wait=0"),
        *python_command("tfrun.launcher.remote_agent"),
    ]


def agent_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment for `srun_agents`."""
    return {k: v for k, v in environment.items() if not _NOT_FOR_AGENTS.fullmatch(k)}


def labelled(line: str) -> tuple[int | None, str]:
    """Splits "2: text" of `srun --label` into the task and the text; None for srun's own lines."""
    match = _LABEL.fullmatch(line)
    return (int(match.group(1)), match.group(2)) if match else (None, line)


def hostnames(node_list: str) -> list[str]:
    """Expands "n[1-11]" with `scontrol show hostnames`, by itself where there is no scontrol.

    Raises:
      TfrunError: TFRUN-211 when it cannot be expanded.
    """
    if shutil.which("scontrol"):
        try:
            return call("scontrol", "show", "hostnames", node_list).split()
        except TfrunError as error:
            raise TfrunError("TFRUN-211", error.what, where="SLURM_JOB_NODELIST") from None
    try:
        return [name for part in split_list(node_list) for name in expand(part)]
    except ValueError as error:
        what = f"{node_list!r:.200} {error}"
        raise TfrunError("TFRUN-211", what, where="SLURM_JOB_NODELIST") from None


def call(*command: str, timeout: float = SECONDS) -> str:
    """Returns what a command of Slurm prints.

    Raises:
      TfrunError: TFRUN-307 when it fails or does not answer.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, errors="replace"
        )
    except OSError as error:
        what = f"{command[0]} cannot be run: {error.strerror}"
        raise TfrunError("TFRUN-307", what, fix="Install Slurm's client commands") from None
    except subprocess.TimeoutExpired:
        what = f"{' '.join(command):.100} has not answered for {timeout:.0f} s"
        raise TfrunError(
            "TFRUN-307", what, fix="Ask whether slurmctld is up: scontrol ping"
        ) from None
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise TfrunError("TFRUN-307", f"{' '.join(command):.100}: {said:.300}")
    return done.stdout
