"""One `fit` on parameter servers that may be cut off: saved to the disk, resumed from there.

The servers hold the state, and their end is the end of it: there is no snapshot in anybody's
memory. A checkpoint is taken between two steps of nobody: those in flight are waited for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tfrun.engine import variable_values
from tfrun.job import reports
from tfrun.process import channel
from tfrun.ps.step_scheduler import Rate
from tfrun.state.fit_keeper import FitKeeper
from tfrun.state.fit_session import FitSession
from tfrun.state.snapshot import Snapshot

REPORT_SECONDS = 1.0


class ServerKeeper(FitKeeper):
    """Keeps no copy of what the servers hold: only the chief's own schedule changes it.

    The plan has the epoch iterator, which knows the steps in flight.
    """

    def state(self, *, whole: bool = True, traced: bool = False) -> Snapshot | None:
        """The state after all steps that were begun, which are waited for."""
        applied, told = self._plan.iterator.quiesce(), self.place
        if applied is not None:
            self.place = told._replace(step=applied + self.ahead)
        try:
            kept = super().state()
        finally:
            self.place = told
        if kept is None or not (pipeline := self._plan.iterator.feed.layers):
            return kept
        return replace(kept, values={**kept.values, "pipeline": pipeline})

    def _put_back(self, kept: Snapshot) -> None:
        super()._put_back(kept)
        if "metrics" in kept.arrays:
            totals = variable_values.fitting(kept.arrays["metrics"], 1)[0]
            self._plan.iterator.carry_over(totals)

    def _hold_variables(self) -> dict[str, Any]:
        return {}


class ServerSession(FitSession):
    """What recovery has to do with a `fit` on parameter servers."""

    on_servers, keeps = True, ServerKeeper

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._report = Rate(REPORT_SECONDS)

    def after_steps(self, *, step: int, made: int = 1, **told: Any) -> None:
        """Saves and tells what is due: there is nothing to keep, and nobody is waited for."""
        self._meter.ended(step=step, **told)
        if self._report.due():
            self._tell_applied()
        self.save_if_due(step, epoch_ended=False)

    def epoch_ended(self, epoch: int) -> None:
        super().epoch_ended(epoch)
        self._tell_applied()
        workspaces = getattr(self._model, "_tfrun_workspaces", {})
        for (kind, _), workspace in workspaces.items():
            if kind == "train":
                channel.emit(reports.Staleness(histogram=workspace.ledger.staleness()))

    def failed(self, error: BaseException) -> None:
        """A lost server ends the round: the controller sees to it, and is told how far it was."""
        if self.has_stepped:
            self._tell_applied()

    def _tell_done(self, step: int) -> None:
        channel.emit(reports.Applied(key=[self.number + 1, 0, 0], step=step))

    def _tell_applied(self) -> None:
        assert self.keeper is not None
        place = self.keeper.place
        key = [self.number, place.epoch, place.step]
        channel.emit(reports.Applied(key=key, step=self._steps))
