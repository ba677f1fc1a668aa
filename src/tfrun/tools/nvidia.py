"""Asks NVIDIA's driver which GPUs this machine has."""

from __future__ import annotations

import subprocess

SECONDS = 15.0
KEYS = ("name", "driver", "memory")


def gpus() -> list[dict[str, str]]:
    """Returns "name", "driver" and "memory" of each; none where no driver answers in time."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [
        dict(zip(KEYS, (part.strip() for part in line.split(",")), strict=False))
        for line in done.stdout.splitlines()
    ]
