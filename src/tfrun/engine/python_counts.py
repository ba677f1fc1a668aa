"""Finds where Python code that a step calls goes on from what it has left: `self.calls += 1`.

Each replica's call counts there, in its worker's process alone: what is computed from it depends on
how many workers there are, and begins anew with a worker that starts again.
"""

from __future__ import annotations

import ast
import inspect
import logging
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from tfrun.engine.script_generators import reached
from tfrun.engine.script_lines import is_script

_log = logging.getLogger("tfrun")
_told: set[str] = set()


def tell(function: Any, where: str) -> None:
    """Says what a Python function of a step counts in, if it does; once.

    Args:
      function: of the script's.
      where: its line, in parentheses.
    """
    counts = of_function(function)
    if counts and where not in _told:
        _told.add(where)
        _log.warning(
            "the step calls Python code%s that counts in %s: once for each replica, in its "
            "worker's process. So what is computed from it depends on how many workers there are, "
            "and it begins anew with a worker that starts again. Count in a tf.Variable, or use "
            "the optimizer's `iterations`",
            where,
            " and ".join(f"`{place}`" for place in counts),
        )


def of_function(function: Any) -> list[str]:
    """The places, as the code has them: "self.calls".

    Args:
      function: of the script's, which a step calls.
    """
    found = [
        place
        for _, value in reached(function)
        if isinstance(value, FunctionType) and is_script(value.__code__.co_filename)
        for place in _counted(value)
    ]
    return list(dict.fromkeys(found))


def _counted(function: FunctionType) -> Iterator[str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):  # a lambda in the midst of a line, a cell
        return
    code = function.__code__
    is_method = "." in function.__qualname__ and code.co_varnames[:1] == ("self",)
    local = {*code.co_varnames, *code.co_cellvars} - ({"self"} if is_method else set())
    for node in ast.walk(tree):
        for place in _goes_on(node):
            root = place
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name) and root.id not in local:
                yield ast.unparse(place)


def _goes_on(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement sets by what it was."""
    if isinstance(node, ast.AugAssign):
        yield node.target
    elif isinstance(node, ast.Assign):
        read = {ast.unparse(each) for each in ast.walk(node.value) if isinstance(each, ast.expr)}
        yield from (target for target in node.targets if ast.unparse(target) in read)
