"""The rules by which a learning rate follows the global batch, as plain arithmetic."""

from __future__ import annotations

import math
from typing import Literal

Rule = Literal["linear", "sqrt", "none"]
RULES = ("linear", "sqrt", "none")
BASE_BATCH = 256  # to which published rates refer since Goyal et al. 2017, "0.1 for 256"


def factor(rule: Rule, ratio: float) -> float:
    """Returns what a rule multiplies the rate by when the batch grows by `ratio`."""
    return {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[rule]
