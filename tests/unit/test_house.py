"""The rules of the house: who may import whom, and how large a file may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tfrun

SOURCE = Path(tfrun.__file__).parent
FILES = sorted(set(SOURCE.rglob("*.py")) - {SOURCE / "__main__.py"})  # that one is the command
MAX_LINES = 400
# From the top down: a room imports only from those that stand below it.
ROOMS = (
    *("notebook", "cli", "tools", "launcher", "agent", "control", "observe"),
    *("worker", "patches", "train", "ps", "state", "engine", "data", "checkpoint"),
    *("storage", "collective", "process", "cluster", "job"),
)
NO_TENSORFLOW = (
    *("notebook", "cli", "tools", "launcher", "agent", "control", "observe"),
    *("storage", "collective", "process", "cluster", "job"),
)
IN_WORKERS = ("tfrun.tools.bench.worker",)  # of a room without TensorFlow, but run by workers


def module_name(path: Path) -> str:
    parts = ("tfrun", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """Returns the room, or "" for the package itself."""
    return module.split(".")[1] if module.count(".") else ""


MODULES = {module_name(path): path for path in FILES}


def imports(path: Path) -> Iterator[str]:
    """Yields the absolute names that a file imports; `from a import b` as a.b if that is a module.

    What is imported in functions, or for type checkers only, counts as well.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module


def test_the_walk_over_imports_sees_them_all(tmp_path):
    path = tmp_path / "m.py"
    path.write_text("import a.b\ndef f():\n  from c import d\nclass C:\n  import e\n")
    assert sorted(imports(path)) == ["a.b", "c", "e"]


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_file_is_about_one_thing(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", [p for p in FILES if p.read_text().strip()], ids=module_name)
def test_a_file_says_what_it_is_about(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def without_tensorflow(module: str) -> bool:
    return room_of(module) in NO_TENSORFLOW and module not in IN_WORKERS


@pytest.mark.parametrize("module", [*filter(without_tensorflow, MODULES)])
def test_rooms_without_tensorflow_do_not_name_it(module):
    found = [n for n in imports(MODULES[module]) if n.split(".")[0] in ("tensorflow", "keras")]
    assert not found


def test_rooms_without_tensorflow_do_not_load_it():
    names = ["tfrun", *filter(without_tensorflow, MODULES)]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "sys.exit(' '.join(sorted({'tensorflow', 'keras'} & set(sys.modules))) or None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", [module for module in MODULES if room_of(module)])
def test_imports_point_down(module):
    for name in imports(MODULES[module]):
        room = room_of(name) if name.split(".")[0] == "tfrun" else ""
        if room and room != room_of(module):
            assert ROOMS.index(room_of(module)) < ROOMS.index(room), f"{module} imports {name}"


def test_modules_do_not_import_each_other_in_a_circle():
    """Nor lazily. The package itself imports its public names when somebody asks for them."""
    graph = {
        module: {name for name in imports(path) if name in MODULES}
        for module, path in MODULES.items()
        if room_of(module)
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_no_two_test_files_have_one_name():
    """pytest imports them by their names alone, whatever folder they are in."""
    tests = Path(__file__).parents[1]
    names = [p.name for p in tests.rglob("*.py") if p.parent.name != "scripts"]
    assert sorted(names) == sorted(set(names))
