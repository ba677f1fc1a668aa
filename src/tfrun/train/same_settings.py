"""Compares what workers call a method with, and their models: each runs the script for itself.

A script that sets its learning rate by its rank would train weights that drift apart, and one that
draws a regularizer's factor without a seed would train what no worker has written; and nothing
would fail.
"""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from tfrun.collective import stamps
from tfrun.data.keras import alike
from tfrun.engine import script_calls
from tfrun.engine.agree import sum_over_workers
from tfrun.job import unmatched_call
from tfrun.job.errors import TfrunError
from tfrun.job.world import world

_NUMBERS = bool | int | float
_PLAIN = _NUMBERS | str | None
# What a worker may have of its own, of whatever it is. A layer may have the shape of its input from
# the first batch that this worker read.
_OWN = ("verbose", "name", "seed", "batch_shape")
_ITEMS = 64  # of a list that are looked at
_BYTES = 1 << 16  # of text that is exchanged, where something differs


def settings_of(model: Any, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The plain values (numbers, texts) that a call and the model's optimizer have, by name.

    Of its layers and losses only numbers: in their texts there may be paths of a machine's own.
    """
    found = _plain("", {n: v for n, v in arguments.items() if n not in alike.ARGUMENTS})
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        found["optimizer"] = type(optimizer).__name__
        found |= _plain("optimizer.", _config_of(optimizer, "get_config"))
    compiled = _config_of(model, "get_compile_config") or {}
    for name in ("loss", "loss_weights"):
        found |= _plain(f"compile.{name}.", compiled.get(name), _NUMBERS)
    layers = model._flatten_layers() if isinstance(model, keras.Model) else []
    for place, layer in enumerate(layers):
        if not isinstance(layer, keras.Model):  # whose layers come themselves
            kind = f"layer {place} ({type(layer).__name__})."
            found |= _plain(kind, _config_of(layer, "get_config"), _NUMBERS)
    return found


def _config_of(one: Any, method: str) -> Any:
    """What it says of itself; None where it says nothing, as classes of the script's may.

    Keras warns there of what cannot be loaded from a file again, which nobody wants here.
    """
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(one, method)()


def _plain(prefix: str, values: Any, kinds: Any = _PLAIN) -> dict[str, str]:
    if isinstance(values, list | tuple) and prefix:
        values = dict(enumerate(values[:_ITEMS]))
    found = {}
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if name in _OWN:
            continue
        if isinstance(value, kinds):
            found[f"{prefix}{name}"] = repr(value)
        elif prefix or isinstance(value, dict):
            found |= _plain(f"{prefix}{name}.", value, kinds)
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
