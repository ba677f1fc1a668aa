"""Writes the files of src/tfrun into docs/tree.md, each with its docstring's first sentence.

python docs/tree.py            rewrites docs/tree.md
python docs/tree.py --check    exits with 1 when docs/tree.md is out of date
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tree.md"
# As the README's table has them: from the top down, and a room imports only from those below it.
ROOMS = (
    *("notebook", "cli", "tools", "launcher", "agent", "control", "observe"),
    *("worker", "patches", "train", "ps", "state", "engine", "data", "checkpoint"),
    *("storage", "collective", "process", "cluster", "job"),
)
OTHERS = {
    "examples/": "scripts to start from",
    "docs/": "the documentation",
    "tests/unit/": "seconds, without TensorFlow where that is possible",
    "tests/cluster/": "real jobs of several processes on this machine",
    "tests/scripts/": "other people's scripts, on 1, 2 and 3 workers: the same numbers",
    "tests/hosts/": "jobs on several hosts, made of network namespaces, as root",
    "bench/": "benchmarks",
}


def summary(path: Path) -> str:
    """Returns the first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    line = text.partition("\n")[0]
    return line.partition(". ")[0].removesuffix(".")


def tree() -> str:
    """Returns the page."""
    source = ROOT / "src" / "tfrun"
    lines = ["src/tfrun/"]
    lines += [_line(1, path.name, summary(path)) for path in _files(source)]
    for room in sorted(filter(_has_code, source.iterdir()), key=_room_order):
        lines += _folder(1, room)
    lines += [_line(0, name, text) for name, text in OTHERS.items() if (ROOT / name).is_dir()]
    return (
        "# The files\n\nWritten by `make tree`; the README has the table of rooms.\n\n"
        "```text not-run=form\n" + "\n".join(lines) + "\n```\n"
    )


def _folder(depth: int, folder: Path) -> list[str]:
    lines = [_line(depth, f"{folder.name}/", summary(folder / "__init__.py"))]
    lines += [_line(depth + 1, p.name, summary(p)) for p in _files(folder)]
    if (folder / "page").is_dir():
        lines.append(_line(depth + 1, "page/", "The live page: HTML, CSS and JavaScript"))
    for inner in sorted(filter(_has_code, folder.iterdir())):
        lines += _folder(depth + 1, inner)
    return lines


def _has_code(path: Path) -> bool:
    return (path / "__init__.py").is_file()


def _files(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.glob("*.py")) if path.name != "__init__.py"]


def _room_order(path: Path) -> int:
    return ROOMS.index(path.name)


def _line(depth: int, name: str, text: str) -> str:
    return f"{'  ' * depth}{name:<{32 - 2 * depth}} {text}".rstrip()


def main() -> None:
    new = tree()
    if "--check" not in sys.argv:
        PAGE.write_text(new, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != new:
        sys.exit("docs/tree.md is out of date: run `make tree`.")


if __name__ == "__main__":
    main()
