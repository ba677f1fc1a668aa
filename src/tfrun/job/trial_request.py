"""A trial: a short run of a script, in which training ends after some steps.

`tfrun parity` and `tfrun tune` start such jobs. They say so in a variable, and
the workers leave what they found in the run directory.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from tfrun.job.errors import UsageError

VARIABLE = "TFRUN_TRIAL"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a trial does.

    Attributes:
      steps: training steps of the script in all; each `fit` after that makes one more.
      record: write down what each step has made of the variables.
      batch: the global batch, in place of the script's; 0 leaves it.
      untimed: steps in the beginning that are not timed; with a batch the others are.
      memory: bytes that a worker may use at once; 0 is no limit.
    """

    steps: int
    record: bool = False
    batch: int = 0
    untimed: int = 0
    memory: int = 0

    def to_environment(self) -> dict[str, str]:
        """The variable that tells the workers."""
        return {VARIABLE: json.dumps(dataclasses.asdict(self))}

    @classmethod
    def parse(cls, text: str) -> Trial:
        """Reads what the variable says."""
        return cls(**json.loads(text))


def folder(run_dir: str | Path) -> Path:
    """Where a trial leaves what it has found."""
    return Path(run_dir, "trial")


def no_step() -> UsageError:
    """The error for a script in which a trial finds nothing."""
    return UsageError(
        "TFRUN-801",
        "the script makes no training step that tfrun sees",
        where="SCRIPT",
        expected="a script that trains with `fit` or with `tfrun.TrainState`",
    )


def fixed_batch() -> UsageError:
    """The error for data that only the script itself can batch otherwise."""
    return UsageError(
        "TFRUN-802",
        "the batch of the script's data cannot be changed from outside",
        where="tfrun tune",
        expected="arrays and batch_size in `fit`, or a tfrun.Dataset",
        fix="Make the pipeline a tfrun.Dataset: Dataset.from_tf_data(make, batch_size=…) takes it "
        "unbatched",
    )
