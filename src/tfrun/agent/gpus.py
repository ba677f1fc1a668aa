"""Decides which GPUs each worker of a machine sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

NVIDIA = Path("/proc/driver/nvidia/gpus")
MEMORY_GROWS = "TF_FORCE_GPU_ALLOW_GROWTH"


def visible_gpus(environment: Mapping[str, str], driver: Path = NVIDIA) -> tuple[str, ...]:
    """Returns this machine's GPUs as CUDA_VISIBLE_DEVICES names them, without touching CUDA.

    Args:
      environment: a CUDA_VISIBLE_DEVICES in it is the user's or the scheduler's word.
      driver: where the NVIDIA driver lists its devices.
    """
    stated = environment.get("CUDA_VISIBLE_DEVICES")
    if stated is not None:
        names = tuple(name.strip() for name in stated.split(",") if name.strip())
        # CUDA itself stops reading at the first device that is none.
        return names[: names.index("-1")] if "-1" in names else names
    try:
        return tuple(str(number) for number, _ in enumerate(sorted(driver.iterdir())))
    except OSError:
        return ()


def share_gpus(
    gpus: Sequence[str], tasks: Sequence[str], *, others_come: bool = False
) -> dict[str, dict[str, str]]:
    """Gives each worker GPUs of its own, or lets workers share when there are fewer.

    Args:
      gpus: the machine's GPUs.
      tasks: the names of the machine's tasks, in rank order.
      others_come: successors of workers may start beside these, on their GPUs.

    Returns:
      For each task the variables that it gets; none without GPUs.
    """
    if not gpus:
        return {task: {} for task in tasks}
    workers = [task for task in tasks if task.startswith("worker")] or list(tasks)
    # Servers and the coordinator compute nothing.
    shares = {task: {"CUDA_VISIBLE_DEVICES": "-1"} for task in tasks}
    each = len(gpus) // len(workers)
    for index, task in enumerate(workers):
        own = gpus[index * each : (index + 1) * each] or [gpus[index % len(gpus)]]
        shares[task] = {"CUDA_VISIBLE_DEVICES": ",".join(own)}
        # Without it the first worker takes the whole memory of the GPU that they share.
        if not each or others_come:
            shares[task][MEMORY_GROWS] = "true"
    return shares
