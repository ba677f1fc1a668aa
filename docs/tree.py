"""Writes the file tree into README.md: each file of src/tfrun with its docstring's first line.

python docs/tree.py            rewrites README.md
python docs/tree.py --check    exits with 1 when README.md is out of date
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START, END = "<!-- tree: written by docs/tree.py -->", "<!-- end of tree -->"
ROOMS = {
    "cli": "the command line: parse, call, print",
    "job": "what to run: specification, time-outs, coded errors, run directory",
    "cluster": "who is where: addresses, hosts, TF_CONFIG, ranks, ports",
    "launch": "how agents start",
    "control": "how machines agree: messages, rounds, controller, agent",
    "worker": "one process's life: zygote, bootstrap, streams",
    "engine": "TensorFlow: strategies, repairs of Keras 3, communication",
    "train": "fit, callbacks and saving on many workers",
    "observe": "events and what the terminal shows",
    "doctor": "is this cluster fit to train",
    "parity": "where runs on different numbers of workers part",
    "tune": "the batch that is fastest and fits in memory",
    "bench": "how fast these machines are together",
}
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
    """Returns the tree as the text block of the README."""
    source = ROOT / "src" / "tfrun"
    lines = ["src/tfrun/"]
    lines += [_line(1, path.name, summary(path)) for path in _files(source)]
    for room in sorted((p for p in source.iterdir() if _has_code(p)), key=_room_order):
        lines.append(_line(1, f"{room.name}/", ROOMS.get(room.name, "")))
        lines += [_line(2, path.name, summary(path)) for path in _files(room)]
    lines += [_line(0, name, text) for name, text in OTHERS.items() if (ROOT / name).is_dir()]
    return "```text\n" + "\n".join(lines) + "\n```"


def _has_code(path: Path) -> bool:
    return path.is_dir() and any(_files(path))


def _files(directory: Path) -> list[Path]:
    """The files with something in them: an empty __init__.py says nothing."""
    return [path for path in sorted(directory.glob("*.py")) if path.read_text().strip()]


def _room_order(path: Path) -> int:
    return list(ROOMS).index(path.name) if path.name in ROOMS else len(ROOMS)


def _line(depth: int, name: str, text: str) -> str:
    return f"{'  ' * depth}{name:<{26 - 2 * depth}}{text}".rstrip()


def updated(readme: str) -> str:
    """Returns the README with the tree of the files as they are now."""
    before, _, rest = readme.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{tree()}\n{END}{after}"


def main() -> None:
    path = ROOT / "README.md"
    old = path.read_text(encoding="utf-8")
    new = updated(old)
    if "--check" not in sys.argv:
        path.write_text(new, encoding="utf-8")
    elif old != new:
        sys.exit("The tree in README.md is out of date: run `make tree`.")


if __name__ == "__main__":
    main()
