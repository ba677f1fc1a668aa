"""Other people's scripts before anybody thought of many workers: without a strategy."""

from __future__ import annotations

import ast


def without_strategy(text: str) -> str | None:
    """Takes the strategy out of a script: where it is made, and the scopes.

    Returns:
      The script's text, on the same lines; None where it uses the strategy for something else.
    """
    tree = ast.parse(text)
    lines = text.splitlines()
    made = {
        target.id: node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _makes_strategy(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    if not made:
        return None
    scopes = [
        (node, item.context_expr)
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
        if _is_scope(item.context_expr, made)
    ]
    used = sum(isinstance(node, ast.Name) and node.id in made for node in ast.walk(tree))
    if used != len(made) + len(scopes) or any(len(node.items) > 1 for node, _ in scopes):
        return None
    for node in made.values():
        for i in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[i] = ""
        lines[node.lineno - 1] = " " * node.col_offset + "pass"
    for node, scope in scopes:
        for i in range(node.lineno - 1, scope.end_lineno or node.lineno):
            lines[i] = ""
        lines[node.lineno - 1] = " " * node.col_offset + "if True:"
    return "\n".join(lines) + "\n"


def _makes_strategy(value: ast.expr) -> bool:
    name = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    return name.endswith("Strategy") or name == "tfrun.strategy"


def _is_scope(value: ast.expr, made: dict[str, ast.Assign]) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "scope"
        and isinstance(value.func.value, ast.Name)
        and value.func.value.id in made
    )
