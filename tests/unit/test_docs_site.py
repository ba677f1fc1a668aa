"""The site of the documentation, built as CI builds it: strictly, and with no network."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs_blocks import ROOT

SECONDS = 120
NOWHERE = "http://127.0.0.1:9"  # nothing listens there
REMOTE = ("http://", "https://", "//")


class Page(HTMLParser):
    """What an HTML page links to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        self.anchors |= {has[name] for name in ("id", "name") if name in has}
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in has:
            self.loads.append(has["src"])
        elif tag == "link" and {"stylesheet", "icon", "preload"} & set(has.get("rel", "").split()):
            self.loads.append(has["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the site has been built."""
    folder = tmp_path_factory.mktemp("site")
    environment = {
        **os.environ,
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), NOWHERE),
        "NO_MKDOCS_2_WARNING": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def _targets(site: Path, path: Path, link: str) -> Iterator[tuple[Path, str]]:
    """Where a link within the site leads, and to which anchor."""
    parts = urllib.parse.urlsplit(html.unescape(link))
    if parts.scheme or parts.netloc:
        return
    name = urllib.parse.unquote(parts.path)
    there = path if not name else (site / name[1:] if name[0] == "/" else path.parent / name)
    there = there.resolve()
    yield (there / "index.html" if there.is_dir() else there), urllib.parse.unquote(parts.fragment)


def test_no_link_is_broken(site: Path, pages: dict[Path, Page]) -> None:
    known = {path.resolve(): page for path, page in pages.items()}
    broken = [
        (str(path.relative_to(site)), link)
        for path, page in pages.items()
        if path.name != "404.html"  # whose links are those of the site's address
        for link in (*page.links, *page.loads)
        for there, anchor in _targets(site, path, link)
        if not there.is_file() or (anchor and there in known and anchor not in known[there].anchors)
    ]
    assert not broken
    assert sum(len(page.links) for page in pages.values()) > 1000


def test_every_page_is_reached_from_the_home_page(site: Path, pages: dict[Path, Page]) -> None:
    home = pages[site / "index.html"]
    reached = {
        there for link in home.links for there, _ in _targets(site, site / "index.html", link)
    }
    names = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert len(names) > 25
    assert {
        name for name in names if (site / name / "index.html").resolve() not in reached
    } == set()
    every = {path.resolve() for path in pages if path.name != "404.html"}
    assert every <= reached | {(site / "index.html").resolve()}


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    loaded = {name for page in pages.values() for name in page.loads}
    assert loaded and not [name for name in loaded if name.startswith(REMOTE)]
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"url\([\"']?(https?:)?//|@import", text), path.name


def test_what_a_page_says_can_be_found(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"]: entry["text"] + entry["title"] for entry in index["docs"]}
    for place, words in {
        "errors/": "TFRUN-511",
        "command-line/": "--in-place",
        "reference/": "from_tfrecords",
    }.items():
        assert any(words in text for name, text in found.items() if name.startswith(place)), words
    # What explains is found before lists in which every word occurs.
    behind = {entry["location"] for entry in index["docs"] if entry.get("boost", 1) < 1}
    assert {"tree/", "changelog/"} <= behind
    assert {name.partition("/")[0] for name in behind} == {"tree", "changelog"}


def test_it_can_be_read_in_the_dark(pages: dict[Path, Page], site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    for scheme in ("default", "slate"):
        assert f'data-md-color-scheme="{scheme}"' in text
    assert 'data-md-color-media="(prefers-color-scheme: dark)"' in text


def test_the_reference_has_the_docstrings(site: Path, pages: dict[Path, Page]) -> None:
    page = pages[site / "reference" / "index.html"]
    text = (site / "reference" / "index.html").read_text(encoding="utf-8")
    assert {"tfrun.strategy", "tfrun.Dataset.from_arrays", "tfrun.TrainState.steps"} <= page.anchors
    for words in ("samples in a <em>global</em> batch", "TFRUN-607", "arXiv:1706.02677"):
        assert words in text
