"""Pictures of what was measured, as PNG files. Needs matplotlib, the extra `plot`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfrun.job.errors import UsageError

INSTALL = 'pip install "tfrun[plot]" brings it'


def check(stated: str | None) -> None:
    """Refuses a picture that is asked for where matplotlib is not installed.

    `stated` is the value of --plot; without one there is a picture where there can be.

    Raises:
      UsageError: TFRUN-803.
    """
    if stated is not None and not _can_draw():
        what = "the curve cannot be drawn: matplotlib is not installed"
        raise UsageError("TFRUN-803", what, where="--plot", fix=INSTALL)


def drawn(path: Path, draw: Callable[[Any], None]) -> str:
    """Draws a picture where that is possible, and returns what a person is told.

    `draw` gets a figure of matplotlib's.

    Raises:
      UsageError: TFRUN-105 where the file cannot be written.
    """
    if not _can_draw():
        return f"no picture was drawn, because matplotlib is missing: {INSTALL}"
    # Not the windows of pyplot: this may be a machine without a screen.
    figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(7, 4.5))
    draw(figure)
    try:
        figure.savefig(path, format="png", dpi=150, bbox_inches="tight")
    except OSError as error:
        raise UsageError(
            "TFRUN-105", f"{str(path)!r} cannot be written: {error.strerror}", where="--plot"
        ) from None
    return f"the curve is in {path}"


def _can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None
