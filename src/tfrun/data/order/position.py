"""A position in the data: the epoch, the step in it, and what is done of that step's batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, order=True)
class Position:
    """The next global batch.

    Attributes:
      epoch: from 0.
      step: global batches of this epoch that are done.
      skip: samples at the beginning of the next one that are done too: the epoch was begun in
        batches of another size.

    Example:
        ```python
        data.position = tfrun.Position(epoch=2)  # the next epoch that is trained is the third
        ```
    """

    epoch: int = 0
    step: int = 0
    skip: int = 0

    @classmethod
    def of(cls, count: int, steps_per_epoch: int, skip: int = 0) -> Position:
        """Returns the position after so many steps.

        Args:
          count: steps from the beginning.
          steps_per_epoch: global batches in an epoch.
          skip: samples of the next global batch that are done as well.

        Example:
            ```python
            data.position = tfrun.Position.of(1203, data.steps_per_epoch)
            ```
        """
        epoch, step = divmod(count, steps_per_epoch)
        return cls(epoch=epoch, step=step, skip=skip)

    def count(self, steps_per_epoch: int) -> int:
        """Returns the steps from the beginning to here.

        Args:
          steps_per_epoch: global batches in an epoch.

        Example:
            ```python
            done = data.position.count(data.steps_per_epoch)
            ```
        """
        return self.epoch * steps_per_epoch + self.step

    def next_epoch(self) -> Position:
        """Returns the beginning of the next epoch; this one where it has not begun."""
        return Position(epoch=self.epoch + (self.step > 0 or self.skip > 0))
