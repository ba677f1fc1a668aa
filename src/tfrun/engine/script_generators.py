"""Finds the random generators of a script's own that a Python function of its step draws from.

`np.random.default_rng(0)` in a global, in a variable of the function around it, or in an attribute
of its object. What a step draws from one has to come out alike on any number of workers, and again
after a failure, as what it draws from the global ones.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from tfrun.data.generator_states import GENERATORS

# Packages whose code is not gone into.
_LEFT_OUT = ("keras", "tensorflow", "tfrun", "numpy", "random", "scipy", "builtins")
_MOST = 2000  # values that are looked at
_ITEMS = 100  # of a list or a dictionary


def of_function(function: Any) -> dict[str, Any]:
    """The generators, by names that are the same in each run of the script.

    Args:
      function: of the script's.
    """
    return {name: value for name, value in reached(function) if type(value) in GENERATORS}


def reached(function: Any) -> list[tuple[str, Any]]:
    """What the code of a function may use, and what that uses, by name."""
    names: set[str] = set()
    while True:  # what code names tells which attributes are looked at
        known = len(names)
        found = list(_reached(function, names))
        if len(names) == known:
            return found


def _reached(function: Any, names: set[str]) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    left = [(getattr(function, "__qualname__", type(function).__qualname__), function)]
    while left and len(seen) < _MOST:
        where, value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield where, value
        if type(value) not in GENERATORS:
            left += reversed(list(_parts(where, value, names)))


def _parts(where: str, value: Any, names: set[str]) -> Iterator[tuple[str, Any]]:
    match value:
        case FunctionType():
            yield from _of_function(where, value, names)
        case MethodType():
            yield where, value.__func__
            yield f"{where}.self", value.__self__
        case functools.partial():
            parts = (value.func, *value.args, *value.keywords.values())
            yield from ((f"{where}/{i}", part) for i, part in enumerate(parts))
        case list() | tuple():
            yield from ((f"{where}[{i}]", item) for i, item in enumerate(value[:_ITEMS]))
        case dict():
            yield from ((f"{where}[{key!r}]", item) for key, item in list(value.items())[:_ITEMS])
        case ModuleType():
            name = vars(value).get("__name__") or ""
            if not _is_left_out(name):
                yield from _named(f"{name}:", vars(value), names)
        case type():
            for base in value.__mro__:
                if not _is_left_out(base.__module__):
                    yield from _named(f"{where}.", vars(base), names)
        case _ if hasattr(value, "__dict__"):
            yield from _named(f"{where}.", vars(value), names)
            yield type(value).__qualname__, type(value)
            call = vars(type(value)).get("__call__")
            if isinstance(call, FunctionType):
                yield f"{where}()", call


def _of_function(where: str, function: Any, names: set[str]) -> Iterator[tuple[str, Any]]:
    inner = getattr(function, "__wrapped__", None)
    if inner is not None:
        yield where, inner
    if _is_left_out(function.__module__ or ""):
        return
    own = _names(function.__code__)
    names |= own
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"{where}/{name}", cell.cell_contents
        except ValueError:  # not set yet
            continue
    given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    yield from ((f"{where}({i})", value) for i, value in enumerate(given))
    yield from _named(f"{function.__module__}:", function.__globals__, own)


def _named(where: str, values: Any, names: set[str] | frozenset[str]) -> Iterator[tuple[str, Any]]:
    for name in sorted(names & values.keys()):
        value = values[name]
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        yield where + name, value


def _is_left_out(module: str) -> bool:
    return module.partition(".")[0] in _LEFT_OUT


@functools.lru_cache(maxsize=1024)
def _names(code: CodeType) -> frozenset[str]:
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return frozenset(code.co_names).union(*inner)
