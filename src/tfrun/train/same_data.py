"""Compares what workers pass to one call, along with what they agree on before it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfrun.collective import stamps
from tfrun.data.keras import alike
from tfrun.engine import script_calls
from tfrun.engine.agree import sum_over_workers
from tfrun.job import reports, unmatched_call
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.train import same_settings

CODE = "TFRUN-616"


def before_call(strategy: Any, call: inspect.BoundArguments, flags: Sequence[bool]) -> list[bool]:
    """Returns for each flag whether it is set on at least one worker; a collective.

    Reports a doubt where the workers' data differs.

    Raises:
      TfrunError: TFRUN-515, where other arguments or the optimizers do.
    """
    here, count = world(), len(flags)
    # Later rounds run the same script, and who is new in one may not hold its state yet.
    model = call.arguments["self"]
    own = same_settings.settings_of(model, call.arguments) if here.round == 0 else {}
    row = np.zeros(count + 2 * here.size, np.int64)
    row[:count] = flags
    row[count + here.rank] = alike.digest_of_all(call.arguments)
    row[count + here.size + here.rank] = same_settings.digest(own)
    summed = sum_over_workers(strategy, row)
    data, others = summed[count:].reshape(2, here.size).tolist()
    if len(set(others)) > 1:
        same_settings.refuse(strategy, own)
    if len(set(data)) > 1:
        _compare(strategy, call)
    return [bool(number) for number in summed[:count]]


def _compare(strategy: Any, call: inspect.BoundArguments) -> None:
    """A collective, on all workers or on none."""
    here, arguments = world(), len(alike.ARGUMENTS)
    exact = np.zeros((here.size, arguments), np.int64)
    values = np.zeros((here.size, arguments, alike.VALUES))
    exact[here.rank], values[here.rank] = alike.sketches(call.arguments)
    exact = sum_over_workers(strategy, exact.ravel()).reshape(exact.shape)
    values = sum_over_workers(strategy, values.ravel()).reshape(values.shape)
    if names := alike.differing(exact, values):
        method = unmatched_call.CALLS[stamps.standing().call]
        text = alike.told(names, method, script_calls.here())
        channel.emit(reports.DoubtRaised(code=CODE, text=text))
