"""Reads what a run has recorded of each step: losses, metrics and sketches of its variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from numpy.typing import NDArray
from safetensors import safe_open

from tfrun.job.trial_request import folder


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """How a run stood after a step; see train/sketch.py for the sketches.

    Attributes:
      step: its number; 0 is before the first one.
      logs: losses and metrics by name.
      sketches: of each variable by name.
      sizes: how many numbers each variable has.
    """

    step: int
    logs: Mapping[str, float] = field(default_factory=dict)
    sketches: Mapping[str, NDArray] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


def read(run_dir: Path) -> list[StepRecord]:
    """Returns the records of a run in order."""
    found = []
    for path in folder(run_dir).glob("step-*.safetensors"):
        with safe_open(path, framework="numpy") as file:
            header = file.metadata()
            sketches = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        found.append(
            StepRecord(
                step=int(path.stem.partition("-")[2]),
                logs={name: float(value) for name, value in json.loads(header["logs"]).items()},
                sketches=sketches,
                sizes=json.loads(header["sizes"]),
            )
        )
    return sorted(found, key=lambda record: record.step)
