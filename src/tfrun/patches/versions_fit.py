"""Whether tfrun's functions fit those of a newer Keras or TensorFlow that they stand around.

Tests have run each of them with the versions in `tfrun.job.supported_versions`. With a newer one, a
function that takes other arguments than the one it replaces would fail amid the first `fit`.
"""

from __future__ import annotations

import gc
import inspect
import types
from collections.abc import Callable
from inspect import Parameter
from typing import Any

from tfrun.engine.script_place import TFRUN


def check() -> None:
    """Refuses what does not fit, once all is in its place.

    Raises:
      TypeError: with the functions that take other arguments.
    """
    wrong = [
        f"{theirs.__module__}.{theirs.__qualname__} takes {_text(theirs, follow=True)}, "
        f"tfrun's {_text(ours, follow=False)}"
        for ours, theirs in replaced()
        if not fits(ours, theirs)
    ]
    if wrong:
        raise TypeError("; ".join(dict.fromkeys(wrong)))


def replaced() -> list[tuple[Callable[..., Any], Callable[..., Any]]]:
    """Each function of tfrun's that stands around another one, and that one."""
    functions = [found for found in gc.get_objects() if type(found) is types.FunctionType]
    ours = [found for found in functions if found.__code__.co_filename.startswith(TFRUN)]
    pairs = [(found, found.__dict__.get("__wrapped__")) for found in ours]
    return [(found, theirs) for found, theirs in pairs if type(theirs) is types.FunctionType]


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
    if Parameter.VAR_POSITIONAL not in kinds and places[: len(given)] != given:
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


def _text(function: Callable[..., Any], *, follow: bool) -> str:
    return f"({', '.join(inspect.signature(function, follow_wrapped=follow).parameters)})"
