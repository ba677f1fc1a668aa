"""What random generators of a script's own have come to. Imports no TensorFlow."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)


def held_by(generator: Any) -> Any:
    """What a generator of the script's has come to."""
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.getstate()


def goes_on(generator: Any, held: Any) -> Any:
    """Has a generator draw as another one of its kind would from here on; returns it."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = held
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(held)
    else:
        generator.setstate(held)
    return generator
