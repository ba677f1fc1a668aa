"""Notices, when a training begins, weights that only some workers have loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfrun.engine.agree import sum_over_workers
from tfrun.engine.local_mode import in_local_mode
from tfrun.engine.sync_check import check_in_sync
from tfrun.job.errors import TfrunError
from tfrun.job.world import world

_noted: list[bool] = []


def note() -> None:
    """The script has loaded values into variables."""
    if not in_local_mode() and not _noted:
        _noted.append(True)


def was_noted() -> bool:
    """Whether it has since this was asked last."""
    was = bool(_noted)
    _noted.clear()
    return was


def check(strategy: Any, model: Any) -> None:
    """Compares all variables of all workers; a collective.

    Raises:
      TfrunError: TFRUN-504 when they differ, as after `if is_chief: model.load_weights(…)`, or
        where a worker's machine does not see the file that the others have loaded.
    """
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(optimizer.variables if optimizer else ())]
    counts = np.zeros(world().size, np.int64)
    counts[world().rank] = len(variables)
    counts = sum_over_workers(strategy, counts)
    if not (counts == counts[0]).all():
        raise TfrunError(
            "TFRUN-504",
            f"the model has {', '.join(map(str, counts))} variables on the workers",
            expected="the same weights loaded on all workers",
            fix="Load on all workers, from a file that all of them see",
        )
    check_in_sync([(variable.path, variable) for variable in variables])
