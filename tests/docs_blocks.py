"""The code blocks of the documentation, and how its commands are run as tests.

    ```python file=train.py     is written to the test's directory
    ```python                   is run by tests/scripts/test_docs_fragments.py
    ```console run              is run by tests/unit/test_docs.py
    ```console run=cluster      is run by tests/cluster/test_docs_jobs.py
    ```console run=net          is run by tests/scripts/test_docs_longer.py
    ```text not-run=said        is not run; NOT_RUN says why

In a console block a line that begins with `$ ` is a command for bash and the lines below it are
its whole output; `…` stands for any text in a line, and alone for any lines. A sh block that is
run, with the same marks, is a script that has to succeed, whatever it prints.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND_SECONDS = 150

# Why a block is not run, and what is tested instead.
NOT_RUN: dict[str, tuple[str, list[str]]] = {
    "form": ("it shows how something looks", []),
    "hosts": ("it takes several machines", ["tests/hosts/test_ssh.py", "tests/hosts/test_join.py"]),
    "installs": ("it downloads TensorFlow", ["tests/versions/test_bare_machine.py"]),
    "kubernetes": ("it takes a cluster", ["tests/hosts/test_host_examples.py"]),
    "make": ("these tests are a part of it", [".ci/run"]),
    "measured": (
        "it shows what was measured on one machine; these run the commands",
        [
            *("tests/cluster/test_bench_jobs.py", "tests/cluster/test_parity.py"),
            *("tests/cluster/test_tune.py", "tests/drills/test_drill.py"),
        ],
    ),
    "part": ("it is a part of a file; JSON and YAML are read by", ["tests/unit/test_docs.py"]),
    "said": ("it is a line that a job prints, and no command", []),
    "slurm": ("it takes a cluster", ["tests/hosts/test_slurm.py"]),
    "stays": ("it serves a browser until it is ended", []),
    "storage": ("it takes an account", ["tests/cluster/test_remote_checkpoints.py"]),
}

# Also in a list, and without a language.
_BLOCK = re.compile(r"^( *)```(\w*)([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: its language, its marks ("run", "run=cluster", "file=…", …) and its text."""

    language: str
    mark: str
    text: str

    def commands(self) -> list[tuple[str, str]]:
        """Returns (command, expected output) of a console block."""
        parts = re.split(r"^\$ (.*)\n?", self.text, flags=re.MULTILINE)
        assert parts[0] == "", f"the block does not begin with a command: {self.text}"
        return list(zip(parts[1::2], parts[2::2], strict=True))


def blocks(page: Path) -> list[Block]:
    return [
        Block(language=language, mark=mark.strip(), text=textwrap.dedent(text) if indent else text)
        for indent, language, mark, text in _BLOCK.findall(page.read_text(encoding="utf-8"))
    ]


def pages_with(mark: str) -> list[str]:
    """Returns the pages that have commands with this mark, relative to the repository."""
    return [
        str(page.relative_to(ROOT))
        for page in PAGES
        if any(block.language in ("console", "sh") and block.mark == mark for block in blocks(page))
    ]


def run_page(page: str, mark: str, directory: Path, environment: dict[str, str]) -> None:
    """Writes a page's files, runs its commands with this mark and compares what they print."""
    for block in blocks(ROOT / page):
        if block.mark.startswith("file="):
            (directory / block.mark.removeprefix("file=")).write_text(block.text)
        elif block.language == "console" and block.mark == mark:
            for command, expected in block.commands():
                _check(command, expected, directory, environment)
        elif block.language == "sh" and block.mark == mark:
            _output(block.text, directory, environment)


def _output(command: str, directory: Path, environment: dict[str, str]) -> str:
    """Runs a command that has to succeed; returns what it prints."""
    bin_directory = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=directory,
        env={**environment, "PATH": f"{bin_directory}:{environment['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}"
    return _COLOURS.sub("", done.stdout).replace("\r", "\n")


def _check(command: str, expected: str, directory: Path, environment: dict[str, str]) -> None:
    output = _output(command, directory, environment)
    assert re.fullmatch(pattern(expected), output), (
        f"$ {command}\n--- printed ---\n{output}\n--- documented ---\n{expected}"
    )


def pattern(expected: str) -> str:
    """Returns the regular expression for a command's whole output."""
    return "".join(
        r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
        for line in expected.splitlines()
    )
