"""The generators that a Python function of a step draws from are found wherever it has them."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest

from tfrun.engine.script_generators import of_function

GLOBAL, UNUSED = np.random.default_rng(1), np.random.default_rng(2)
HELD = {"noise": np.random.RandomState(3), "others": [random.Random(4)]}


class Noise:
    shared = np.random.default_rng(5)

    def __init__(self) -> None:
        self.own, self.unused = np.random.default_rng(6), np.random.default_rng(7)
        self.inner = Inner()

    def draw(self) -> float:
        return self.own.random()

    def of_class(self) -> float:
        return self.shared.random()

    def of_method(self) -> float:
        return self.draw()

    def of_inner(self) -> float:
        return self.inner.draws()

    @staticmethod
    def of_none() -> float:
        return GLOBAL.random()


class Called:
    def __init__(self) -> None:
        self.inside = Noise()

    def __call__(self) -> float:
        return self.inside.draw()


class Inner:
    def __init__(self) -> None:
        self._generator = random.Random(8)

    def draws(self) -> float:
        return self._generator.random()


def of_global() -> float:
    return GLOBAL.random()


def of_held() -> float:
    return HELD["noise"].rand() + HELD["others"][0].random()


def of_other() -> float:
    return of_global()


def of_default(generator: np.random.Generator = UNUSED) -> float:
    return generator.random()


def of_argument(generator: np.random.Generator) -> float:
    return generator.random()


def of_nothing() -> float:
    return np.random.rand() + random.random() + len(HELD)


def of_cell() -> object:
    generator = np.random.default_rng(9)
    return lambda: [generator.random() for _ in range(3)]


noise, called = Noise(), Called()
CELL = of_cell()


@pytest.mark.parametrize(
    ("function", "generators"),
    [
        (of_global, [GLOBAL]),
        (of_other, [GLOBAL]),
        (of_held, [HELD["noise"], HELD["others"][0]]),
        (of_default, [UNUSED]),
        (functools.partial(of_argument, UNUSED), [UNUSED]),
        (CELL, [CELL.__closure__[0].cell_contents]),
        (noise.draw, [noise.own]),
        (noise.of_class, [Noise.shared]),
        (noise.of_method, [noise.own]),
        (noise.of_inner, [noise.inner._generator]),
        (noise.of_none, [GLOBAL]),
        (called, [called.inside.own]),
        (functools.wraps(of_global)(lambda: of_global()), [GLOBAL]),
        (np.add, []),
        (len, []),
    ],
)
def test_they_are_found(function, generators):
    found = of_function(function)
    assert set(map(id, found.values())) == set(map(id, generators))
    assert list(found) == list(of_function(function))


def test_the_global_ones_are_none_of_the_scripts():
    assert set(map(id, of_function(of_nothing).values())) <= set(
        map(id, (HELD["noise"], HELD["others"][0]))
    )
