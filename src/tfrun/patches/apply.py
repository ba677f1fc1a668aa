"""Puts the patches in place, in the order of the table."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from inspect import Parameter
from types import FunctionType
from typing import Any, NamedTuple

from tfrun.patches.patch import Patch
from tfrun.patches.table import TABLE

DOES_NOT_FIT = (AttributeError, ImportError, TypeError)

_seen: set[Patch] = set()


class Replacement(NamedTuple):
    """What takes the place of an attribute.

    Attributes:
      owner: the module or the class.
      name: of the attribute.
      original: what stands there; None where nothing does.
      made: what will.
    """

    owner: Any
    name: str
    original: Any
    made: Any


def apply(patches: Iterable[Patch] = TABLE) -> None:
    """Applies patches in this process, each one once.

    It runs no op, so that a process may call it and fork its workers afterwards. One that the
    installed version has no place for is left out, with a line that says so, unless it is needed.

    Raises:
      TypeError: with all needed ones that do not fit this version of Keras and TensorFlow.
    """
    wrong = []
    for patch in patches:
        if patch in _seen:
            continue
        try:
            found = list(replacements(patch))
        except DOES_NOT_FIT as error:
            if patch.needed:
                wrong.append(str(error))
                continue
            name = ", ".join(patch.targets)
            print(f"tfrun: the patch of {name} is left out: {error}", file=sys.stderr, flush=True)
        else:
            for each in found:
                setattr(each.owner, each.name, each.made)
        _seen.add(patch)
    if wrong:
        raise TypeError("; ".join(dict.fromkeys(wrong)))


def replacements(patch: Patch) -> Iterator[Replacement]:
    """Yields what a patch replaces in the installed version, and replaces nothing.

    Raises:
      AttributeError, ImportError, TypeError: the patch does not fit.
    """
    for target, wraps in patch.targets.items():
        module, _, path = target.partition(":")
        owner: Any = importlib.import_module(module)
        *outer, name = path.split(".")
        for each in outer:
            owner = getattr(owner, each)
        if not (patch.adds and hasattr(owner, name)):
            yield _replacement(owner, name, None if patch.adds else getattr(owner, name), wraps)
        for other in map(importlib.import_module, patch.also):
            if not outer and hasattr(other, name):
                yield _replacement(other, name, getattr(other, name), wraps)


def _replacement(owner: Any, name: str, original: Any, wraps: str) -> Replacement:
    theirs: Any = original.fget if isinstance(original, property) else original
    made: Any = theirs
    for wrap in wraps.split():
        module, _, function = wrap.partition(":")
        around = getattr(importlib.import_module(f"tfrun.patches.{module}"), function)
        inner, made = made, around(made)
        if isinstance(made, FunctionType) and isinstance(theirs, FunctionType):
            if not fits(made, theirs):
                raise TypeError(
                    f"{theirs.__module__}.{theirs.__qualname__} takes {_text(theirs, True)}, "
                    f"tfrun's {_text(made, False)}"
                )
            functools.update_wrapper(made, inner)
    return Replacement(owner, name, original, property(made) if theirs is not original else made)


def fits(ours: Callable[..., Any], theirs: Callable[..., Any]) -> bool:
    """Whether all that one function can be called with, the other can.

    Args:
      ours: what is called instead.
      theirs: what others call.
    """
    mine = inspect.signature(ours, follow_wrapped=False).parameters
    wanted = inspect.signature(theirs).parameters
    kinds = {parameter.kind for parameter in mine.values()}
    places, given = _positional(mine), _positional(wanted)
    same = min(len(places), len(given)) if Parameter.VAR_POSITIONAL in kinds else len(given)
    begin = int(given[:1] == ["self"])  # nobody names that in a call; all others may be named
    if places[begin:same] != given[begin:same]:
        return False
    if Parameter.VAR_KEYWORD not in kinds and not set(_named(wanted) + given) <= set(mine):
        return False
    # What ours cannot do without has to come always.
    surely = [name for name in given if wanted[name].default is Parameter.empty]
    needed = [name for name in places if mine[name].default is Parameter.empty]
    alone = {name for name in _named(mine) if mine[name].default is Parameter.empty}
    always = {name for name in _named(wanted) if wanted[name].default is Parameter.empty}
    return len(needed) <= len(surely) and alone <= always


def _named(parameters: Any) -> list[str]:
    return [name for name, p in parameters.items() if p.kind is Parameter.KEYWORD_ONLY]


def _positional(parameters: Any) -> list[str]:
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in parameters.items() if parameter.kind in kinds]


def _text(function: Callable[..., Any], follow: bool) -> str:
    return f"({', '.join(inspect.signature(function, follow_wrapped=follow).parameters)})"
