"""Numbers on the command line: click's own ranges let nan and inf through."""

from __future__ import annotations

import math
from typing import Any

import click

MOST = 1e9  # in seconds thirty years; clocks overflow far beyond


class Number(click.FloatRange):
    """A number that can be counted with, within a range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number) or number > MOST:
            self.fail(f"{number} is not a number up to {MOST:,.0f}.", param, ctx)
        return number
