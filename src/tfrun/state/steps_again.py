"""Goes on in the midst of a `fit`: a step that a peer's end has cut off is made again, with others.

Keras's `fit` does not notice. It calls its train function once, between the same two callbacks, and
what it calls enters the job's next round when the step fails, and makes the step there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfrun.process.peers_left import PeersLeft


class GoesElsewhere(PeersLeft):
    """This worker is in the next round, and its `fit` has to begin anew to stand where others do.

    Attributes:
      goes_on: where that is, see `session.GoesOn`.
    """

    def __init__(self, goes_on: Any) -> None:
        super().__init__("the training goes on elsewhere")
        self.goes_on = goes_on


class MadeAgain:
    """A train function whose step is made again where it can be.

    Args:
      function: the train function.
      again: is given the error; returns an iterator with the step's batches, or raises.

    Attributes:
      function: see above.
    """

    def __init__(self, function: Any, again: Callable[[Exception], Any]) -> None:
        self.function, self._again = function, again

    def __call__(self, iterator: Any) -> Any:
        while True:
            try:
                return self.function(iterator)
            except Exception as error:
                iterator = self._again(error)
