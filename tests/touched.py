"""Finds the options of the command line that a change touches: their tests run every day.

A change is what the last commits and the working tree differ in. It touches an option when one of
its lines in src or in the options' own tests names the option as code does (`--keep`, `TFRUN_KEEP`,
`keep=`, `spec.keep`), or when it is in a file that handles the option and few others. A clone that
knows no earlier commit has no change: then the day's share is all that runs.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("src/tfrun/", "tests/options/")
COMMITS = 10
FEW = 4  # a file that names more options is no one's: only its changed lines count
SECONDS = 20.0


def names(option: str, text: str) -> bool:
    """Whether code names an option, given as in Python: `checkpoint_every`."""
    dashed = option.replace("_", "-")
    ways = [rf"--(no-)?{dashed}\b", rf"\bTFRUN_{option.upper()}\b"]
    # A word such as `keep` means many things: it counts where it is an attribute or an argument.
    ways += (
        [rf"\b{option}\b"] if "_" in option else [rf"[\"'.]{option}\b(?!\()", rf"\b{option}[=:]"]
    )
    return re.search("|".join(ways), text) is not None


def changed_lines(diff: str) -> dict[str, str]:
    """The removed and added lines of a git diff, by file; only of files in SOURCES."""
    found: dict[str, list[str]] = {}
    here: list[str] = []
    for line in diff.splitlines():
        if line.startswith("diff --git "):
            path = line.rpartition(" b/")[2]
            here = found.setdefault(path, []) if path.startswith(SOURCES) else []
        elif line.startswith(("+", "-")) and not line.startswith(("+++", "---")):
            here.append(line[1:])
    return {path: "\n".join(lines) for path, lines in found.items()}


def touched(options: Iterable[str], lines: Mapping[str, str], texts: Mapping[str, str]) -> set[str]:
    """The options that a change touches.

    Args:
      options: all of them, by their names in Python.
      lines: what `changed_lines` gives.
      texts: the whole text of those files, where they are still there.
    """
    options = list(options)
    found = {option for option in options if any(names(option, part) for part in lines.values())}
    for path in lines:
        handles = {option for option in options if names(option, texts.get(path, ""))}
        if len(handles) <= FEW:
            found |= handles
    return found


def by_this_change(options: Iterable[str]) -> set[str]:
    """The options that the last commits and the working tree touch.

    TFRUN_TEST_BASE names the commit that they are compared with, such as the one that a branch
    has come from; without it, it is the tenth before the last.
    """
    base = os.environ.get("TFRUN_TEST_BASE") or _earlier()
    lines = changed_lines(_git("diff", "--no-color", "--no-ext-diff", "-U0", base)) if base else {}
    paths = [ROOT / path for path in lines]
    texts = [path.read_text() if path.is_file() else "" for path in paths]
    return touched(options, lines, dict(zip(lines, texts, strict=True)))


def _earlier() -> str:
    known = _git("rev-list", "--first-parent", f"--max-count={COMMITS + 1}", "HEAD").split()
    return known[-1] if known else ""


def _git(*words: str) -> str:
    """What git says; "" where there is no git, or no repository that is one's own."""
    try:
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", *words],
            cwd=ROOT,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
