"""Writes the tables of the documentation from bench/results/latest.json.

The same numbers are kept under the version that they belong to: what is slower than the last
release shows.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`, on any page of docs. NAME
is a benchmark's, or one of `summary.TABLES`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import summary

from tfrun import __version__

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
_TABLE = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> None:
    latest = (HERE / "results" / "latest.json").read_text()
    (HERE / "results" / f"{__version__}.json").write_text(latest)
    measured = json.loads(latest)
    for page, text in pages():
        page.write_text(filled(text, measured))


def pages() -> Iterator[tuple[Path, str]]:
    """The pages that have tables, and their texts."""
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        if _TABLE.search(text):
            yield page, text


def filled(text: str, measured: Mapping[str, Any]) -> str:
    """A page with its tables as measured."""

    def body(name: str) -> str:
        if short := summary.TABLES.get(name):
            return short(measured)
        return table(measured.get(name))

    return _TABLE.sub(lambda found: f"{found[1]}\n{body(found[2])}\n\n{found[3]}", text)


def table(found: Mapping[str, Any] | None) -> str:
    """The Markdown of one benchmark."""
    if found is None:
        return "Not measured on this machine yet."
    lines = [f"| {found['unit']} | median | lowest | highest | runs |", "| --- " * 5 + "|"]
    for name, numbers in found["results"].items():
        values = [f"{numbers[key]:g}" for key in ("median", "low", "high", "repeats")]
        lines.append(f"| {name} | {' | '.join(values)} |")
    for name, reason in found.get("not run", {}).items():
        lines.append(f"| {name} | not run: {reason} | | | |")
    for name, value in found["ratios"].items():
        lines.append(f"| *{name.replace('_', ' ')}* | {value:g} | | | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
