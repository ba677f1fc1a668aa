"""How often a pipeline has been begun: that tells in which of its random orders training is.

A `tf.data` pipeline that shuffles draws its next order when somebody begins to read it, a generator
goes on where it was left. So the place in such data is a number of passes and a number of batches,
and after a failure both have to be what they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfrun.data.keras import own_rows
from tfrun.data.order import repeatable
from tfrun.job.errors import TfrunError


@dataclass
class Passes:
    """Counts how often an iterator over some data has been made.

    Attributes:
      data: what is read; None until somebody reads.
      begun: so often by us.
    """

    data: Any = None
    begun: int = 0

    @property
    def stand(self) -> list[int]:
        """How often the data has been begun by us, and by whoever else draws from its shuffles."""
        return [self.begun, own_rows.drawn(self.data)]

    def check(self, expected: list[int] | None, what: str) -> None:
        """Refuses to go on in another pass over the data than the earlier run of the script.

        Args:
          expected: the stand when the state was kept; None if nobody knows.
          what: "the training data" or the like.

        Raises:
          TfrunError: TFRUN-615.
        """
        if expected in (None, self.stand) or not _depends_on_passes(self.data):
            return
        now, then = sum(self.stand), sum(expected or ())
        raise TfrunError(
            "TFRUN-615",
            f"{what} has been begun {now} times in this run of the script, and had been begun "
            f"{then} times when the state was kept: training would go on with other samples",
            expected="the script to read its data in the same way whenever it is run",
            fix="Look for what reads the dataset elsewhere, such as a callback that looks at a "
            "batch: give it a dataset of its own; a tfrun.Dataset goes on exactly in any case",
        )


def _depends_on_passes(data: Any) -> bool:
    if not isinstance(data, tf.data.Dataset):
        return True
    return bool(repeatable.why_not(data)) or repeatable.draws(data)
