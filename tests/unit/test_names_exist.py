"""Every name of tfrun that tests, benchmarks, examples and texts use exists; nothing is run.

A module that is renamed leaves its old name in places that only run after minutes, or on GPUs:
in imports, in `monkeypatch.setattr("tfrun.…")`, after `-m`, in scripts that are strings. So does an
argument: what is passed by name to functions and classes of tfrun has to be there, too.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tfrun"
FOLDERS = ("src", "tests", "bench", "examples")
CODE = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
CODE = [path for path in CODE if ROOT / "bench" / "envs" not in path.parents]  # what others install
CODE.remove(Path(__file__))  # it names some that do not exist
TEXTS = [ROOT / "Makefile", ROOT / ".ci/run", ROOT / "pyproject.toml"]
TEXTS += [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

_DOTTED = re.compile(r"(?<![\w./-])tfrun(?:\.[A-Za-z_]\w*)+")
_PATH = re.compile(r"(?<![\w./-])((?:src/tfrun|tests|bench|docs)/[\w/-]+\.\w+)(?:::(\w+))?")
_IMPLICIT = {"__file__", "__name__", "__doc__", "__path__", "__spec__", "__dict__"}


def module_name(path: Path) -> str:
    """Returns how code imports a file of src."""
    parts = ("tfrun", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}
MODULES |= {p.stem: p for p in (ROOT / "tests").rglob("*.py") if p.parent.name != "scripts"}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def names_of(module: str) -> set[str]:
    """Returns what a module binds outside its functions and classes."""
    names = set(_IMPLICIT)
    rest: list[ast.AST] = [tree_of(MODULES[module])]
    while rest:
        node = rest.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        else:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            rest += ast.iter_child_nodes(node)
    return names


@cache
def arguments_of(module: str, name: str) -> set[str] | None:
    """Returns what a function or a class of a module takes by name; None: it cannot be said."""
    for node in tree_of(MODULES[module]).body:
        if isinstance(node, ast.ImportFrom) and name in {each.name for each in node.names}:
            return arguments_of(node.module, name) if node.module in MODULES else None
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _arguments_of_class(module, node)
        if getattr(node, "name", None) == name:
            return None if getattr(node, "decorator_list", None) else _arguments(node)
    return None


def _arguments_of_class(module: str, node: ast.ClassDef) -> set[str] | None:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return _arguments(each)
    targets = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]  # a dataclass
    found = {target.id for target in targets if isinstance(target, ast.Name)}
    for base in node.bases:
        inherited = arguments_of(module, base.id) if isinstance(base, ast.Name) else None
        if inherited is None:
            return None
        found |= inherited
    return found


def _arguments(node: ast.AST) -> set[str] | None:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.args.kwarg:
        return None
    return {arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)}


def exists(dotted: str) -> bool:
    """Whether there is such a module, or such a name in one; what follows that is not looked at.

    Args:
      dotted: "package.module.name", or "package.module.name(argument=)".
    """
    dotted, _, argument = dotted.partition("(")
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        if module in MODULES:
            if argument and end == len(parts) - 1:
                known = arguments_of(module, parts[end])
                return known is None or argument.removesuffix("=)") in known
            return end == len(parts) or parts[end] in names_of(module)
    return False


def used(tree: ast.AST) -> Iterator[str]:
    """Yields the dotted names that code uses, and those in its strings."""
    aliases: dict[str, str] = {}
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                if root in MODULES:
                    aliases[alias.asname or root] = alias.name if alias.asname else root
                    yield alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MODULES:
            for alias in node.names:
                yield (name := f"{node.module}.{alias.name}")
                aliases[alias.asname or alias.name] = name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from named_in(node.value)
    for name in bound:  # also another thing's name, somewhere in the file
        aliases.pop(name, None)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := _resolve(node, aliases)):
            yield name
        elif isinstance(node, ast.Call):
            if called := _resolve(node.func, aliases):
                yield from (f"{called}({each.arg}=)" for each in node.keywords if each.arg)
            elif getattr(node.func, "attr", "") in ("setattr", "delattr") and len(node.args) > 1:
                module, name = _resolve(node.args[0], aliases), node.args[1]
                if module in MODULES and isinstance(name, ast.Constant):
                    yield f"{module}.{name.value}"


def _resolve(node: ast.expr, aliases: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _resolve(node.value, aliases)):
        return f"{owner}.{node.attr}"
    return None


def named_in(text: str) -> Iterator[str]:
    """Yields the dotted names in a text, or in the script that it is."""
    if "tfrun" not in text:
        return
    if "\n" in text and "import" in text:
        try:
            script = ast.parse(textwrap.dedent(text))
        except SyntaxError:
            pass
        else:
            yield from used(script)
            return
    yield from _DOTTED.findall(text)


def missing_in(path: Path) -> set[str]:
    """Returns what a file names and nothing has, as "names.of.modules" and "paths/of/files.py"."""
    text = path.read_text(encoding="utf-8")
    names = used(tree_of(path)) if path.suffix == ".py" else named_in(text)
    if path.parent.name == "scripts":  # run by themselves: what they import stands beside them
        names = (name for name in names if name.startswith("tfrun"))
    missing = {name for name in names if not exists(name)}
    for name, test in _PATH.findall(text):
        file = ROOT / name
        if not file.exists() or (test and f"def {test}(" not in file.read_text(encoding="utf-8")):
            missing.add(name + test)
    return missing


def test_all_names_exist():
    found = {str(path.relative_to(ROOT)): missing_in(path) for path in CODE + TEXTS}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        ("from tfrun.job import spec, gone", "tfrun.job.gone"),
        ("import tfrun.gone.world", "tfrun.gone.world"),
        ("from tfrun.job import spec as s\ns.JobSpec\ns.Gone", "tfrun.job.spec.Gone"),
        ("from tfrun.job import spec\nm.setattr(spec, 'gone', 1)", "tfrun.job.spec.gone"),
        ("from tfrun.job.spec import JobSpec\nJobSpec(gone=1)", "tfrun.job.spec.JobSpec(gone=)"),
        ("from tfrun.job.reports import Error\nError(gone=1)", "tfrun.job.reports.Error(gone=)"),
        ("f('tfrun.job.spec.gone', '-m', 'tfrun.cli.main')", "tfrun.job.spec.gone"),
        ("f('''\n  import tfrun\n  tfrun.gone()\n''')", "tfrun.gone"),
    ],
)
def test_missing_names_are_found(code, missing):
    assert {name for name in used(ast.parse(code)) if not exists(name)} == {missing}
