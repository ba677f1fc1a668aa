"""Adds to the site what stands outside docs/: the README as its home, and files that pages link to.

On GitHub the same links lead to the files where they are.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Files of the repository that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "bench/README.md": "benchmarks.md",
}
# Lists of everything, in which every word occurs: the search shows pages that explain first.
LAST_FOUND = {"tree.md": 0.1, "changelog.md": 0.2}
_LINK = re.compile(r"(\]\(|href=\"|src=\")(?!https?://|#|mailto:)([^)#\"\s]+)")

_FENCE = re.compile(r"^( *)```(\w+) ([^`\n]+)$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Adds those pages, and every other file outside docs/ that a page names."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for file in list(files.documentation_pages()):
        here = _where(file.src_uri)
        for _, target in _LINK.findall(file.content_string):
            path = _resolved(here, target)
            name = _name_here(path)
            if name.startswith("files/") and files.get_file_from_path(name) is None:
                if not (ROOT / path).is_file():
                    raise FileNotFoundError(f"{here} links to {target}, which is not there")
                files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Has links lead to where the site has these files."""
    here, source = page.file.src_uri, _where(page.file.src_uri)
    if here in LAST_FOUND:
        page.meta["search"] = {"boost": LAST_FOUND[here]}

    def moved(found: re.Match[str]) -> str:
        name = _name_here(_resolved(source, found[2]))
        return found[1] + posixpath.relpath(name, posixpath.dirname(here) or ".")

    return _FENCE.sub(_fence, _LINK.sub(moved, markdown))


def _fence(found: re.Match[str]) -> str:
    """What our tests read after the language of a block would end it for the site."""
    indent, language, mark = found.groups()
    name = mark.strip().removeprefix("file=")
    title = f' title="{name}"' if "file=" in mark else ""
    return f"{indent}```{language}{title}"


def _where(page: str) -> str:
    """The place in the repository of a page of the site."""
    return next((source for source, name in PAGES.items() if name == page), f"docs/{page}")


def _resolved(here: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(here), target))


def _name_here(path: str) -> str:
    """The place in the site of a file of the repository."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    # A browser shows a text, and saves what it does not know.
    return (
        f"files/{path}.txt" if path.endswith((".py", ".sh", ".yaml", ".yml")) else f"files/{path}"
    )
