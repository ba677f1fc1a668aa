"""One `fit` on parameter servers that may be cut off: saved to the disk, resumed from there.

The servers hold the state, and their end is the end of it: there is no snapshot in anybody's
memory. A checkpoint is taken between two steps of nobody: those in flight are waited for.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tfrun.engine import variable_values
from tfrun.process import channel
from tfrun.ps.keras_epochs import carry_over, read_so_far, running
from tfrun.ps.scheduler import Rate
from tfrun.state import callback_state, finished_calls, fit_keeper, leaving
from tfrun.state.durable_checkpoints import durable
from tfrun.state.snapshot import Snapshot
from tfrun.train.fit_session import Session

REPORT_SECONDS = 1.0


class ServerKeeper(fit_keeper.Keeper):
    """Keeps no copy of what the servers hold: only the chief's own schedule changes it."""

    def state(self) -> Snapshot | None:
        """The state after all steps that were begun, which are waited for."""
        run, told = running(), self.place
        if run is not None:
            self.place = told._replace(step=run.quiesce() + self.ahead)
        try:
            kept = super().state()
        finally:
            self.place = told
        if kept is None or not (pipeline := read_so_far(self._model)):
            return kept
        return replace(kept, values={**kept.values, "pipeline": pipeline})

    def restore(self, kept: Snapshot) -> None:
        super().restore(kept)
        if "metrics" in kept.arrays:
            carry_over(self._model, variable_values.fitting(kept.arrays["metrics"], 1)[0])

    def _hold_everything(self) -> None:
        self._look_at_variables()
        self._held_metrics = self._metrics()
        arrays: dict[str, NDArray] = {}
        self._held_callbacks = callback_state.take(self._callbacks, arrays), arrays


class ServerSession(Session):
    """What recovery has to do with a `fit` on parameter servers.

    Args:
      model: the model.
      call: `fit`'s arguments.
      folder: where the chief's machine keeps what `fit` calls have returned.
    """

    def __init__(self, model: Any, call: inspect.BoundArguments, folder: Path) -> None:
        super().__init__(model, None, call, folder, on_servers=True)
        self._recovers, self._progress = False, None
        self._report = Rate(REPORT_SECONDS)

    def train_begins(self) -> None:
        super().train_begins()
        before = self._keeper
        assert before is not None
        self._keeper = ServerKeeper(
            self._model, None, self._callbacks, call=self._number, reads=self._reads.reads
        )

    def step_ended(self) -> None:
        assert self._keeper is not None
        if not self._stepped:
            self._stepped = True
            leaving.say_stepped(self._keeper.place, self._iterations(), self._together)
        place, logs = self._keeper.place, self._keeper.logs
        done = place.step - self._keeper.ahead
        self._meter.ended(epoch=place.epoch, in_epoch=done, step=self._steps, logs=logs)
        if self._report.due():
            self._tell_applied()
        self._save_if_due(epoch_ended=False)

    def epoch_ended(self, epoch: int, *, last: bool) -> None:
        super().epoch_ended(epoch, last=last)
        self._tell_applied()
        workspaces = getattr(self._model, "_tfrun_workspaces", {})
        for (kind, _), workspace in workspaces.items():
            if kind == "train":
                channel.emit("staleness", histogram=workspace.ledger.staleness())

    def failed(self, error: BaseException) -> None:
        """A lost server ends the round: the controller sees to it, and is told how far it was."""
        if self._stepped:
            self._tell_applied()

    def _record(self, history: Any, callbacks: Any) -> None:
        finished_calls.record(
            self._folder, self._number, self._model, history, callbacks, self._data
        )
        if (saving := durable()) is not None:
            saving.keep_call(finished_calls.path_of(self._folder, self._number))
        channel.emit("applied", key=[self._number + 1, 0, 0], step=self._iterations())

    def _tell_applied(self) -> None:
        assert self._keeper is not None
        place = self._keeper.place
        key = [self._number, place.epoch, place.step]
        channel.emit("applied", key=key, step=self._steps)
