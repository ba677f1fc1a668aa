"""Compares what workers call a method with, and their optimizers: each runs the script for itself.

A script that sets its learning rate, or its batch, by its rank would train weights that drift
apart, and nothing would fail.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrun.collective import stamps
from tfrun.engine import script_calls
from tfrun.engine.agree import sum_over_workers
from tfrun.job import unmatched_call
from tfrun.job.errors import TfrunError
from tfrun.job.world import world

_PLAIN = bool | int | float | str | None
_OWN = ("verbose", "name", "optimizer.name")  # what a worker may have of its own
_BYTES = 4096  # of text that is exchanged, where something differs


def settings_of(model: Any, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The plain values (numbers, texts) that a call and the model's optimizer have, by name."""
    found = _plain("", arguments)
    optimizer = getattr(model, "optimizer", None)
    with contextlib.suppress(Exception):  # an optimizer of the script's own may have no config
        found |= _plain("optimizer.", optimizer.get_config()) if optimizer is not None else {}
    if optimizer is not None:
        found["optimizer"] = type(optimizer).__name__
    return {name: value for name, value in found.items() if name not in _OWN}


def _plain(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name, value in values.items():
        if isinstance(value, _PLAIN):
            found[prefix + name] = repr(value)
        elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
            found |= _plain(f"{prefix}{name}.", value)
    return found


def digest(settings: Mapping[str, str]) -> int:
    """63 bits of them."""
    text = repr(sorted(settings.items())).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")


def refuse(strategy: Any, settings: Mapping[str, str]) -> None:
    """Says what differs; a collective, on all workers or on none.

    Raises:
      TfrunError: TFRUN-515.
    """
    here = world()
    mine = "\n".join(f"{name}={value}" for name, value in sorted(settings.items())).encode()
    texts = np.zeros((here.size, _BYTES), np.int64)
    texts[here.rank, : min(len(mine), _BYTES)] = list(mine[:_BYTES])
    rows = sum_over_workers(strategy, texts.ravel()).reshape(texts.shape).astype(np.uint8)
    told = [dict(_read(row.tobytes())) for row in rows]
    call = unmatched_call.CALLS[stamps.standing().call]
    raise TfrunError(
        "TFRUN-515",
        difference(told) or "the workers' settings differ",
        where=f"{call}, {script_calls.here()}",
        expected="the same on all workers, which train one model together",
        fix="Set nothing by rank; where each worker is to train alone, use --strategy script",
    )


def _read(row: bytes) -> list[list[str]]:
    lines = row.rstrip(b"\0").decode(errors="replace").splitlines()
    return [line.split("=", 1) for line in lines if "=" in line]


def difference(told: list[dict[str, str]]) -> str:
    """The first setting that is not the same on all workers, in words; "" for none."""
    for name in sorted({name for one in told for name in one}):
        values = [one.get(name, "not there") for one in told]
        for rank, value in enumerate(values):
            if value != values[0]:
                return f"{name} is {values[0]} on worker 0, and {value} on worker {rank}"
    return ""
