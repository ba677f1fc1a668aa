"""Writes the tables of docs/performance.md from bench/results/latest.json.

The same numbers are kept under the version that they belong to: what is slower than the last
release shows.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; NAME is a benchmark's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfrun import __version__

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
_TABLE = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> None:
    latest = (HERE / "results" / "latest.json").read_text()
    (HERE / "results" / f"{__version__}.json").write_text(latest)
    measured = json.loads(latest)
    page = PAGE.read_text()
    PAGE.write_text(_TABLE.sub(lambda m: m[1] + table(measured.get(m[2])) + m[3], page))


def table(found: Mapping[str, Any] | None) -> str:
    """The Markdown of one benchmark."""
    if found is None:
        return "\nNot measured on this machine yet.\n\n"
    lines = [f"| {found['unit']} | median | lowest | highest | runs |", "| --- " * 5 + "|"]
    for name, numbers in found["results"].items():
        values = [f"{numbers[key]:g}" for key in ("median", "low", "high", "repeats")]
        lines.append(f"| {name} | {' | '.join(values)} |")
    for name, reason in found.get("not run", {}).items():
        lines.append(f"| {name} | not run: {reason} | | | |")
    for name, value in found["ratios"].items():
        lines.append(f"| *{name.replace('_', ' ')}* | {value:g} | | | |")
    return "\n" + "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    main()
