"""The documentation: complete, linked, and its quick commands do what it says."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

import tfrun
from docs_blocks import NOT_RUN, PAGES, ROOT, blocks, pages_with, pattern, run_page
from tfrun.cli.main import run
from tfrun.job.errors import CODES


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", pages_with("run"))
def test_commands(page, jobs):
    run_page(page, "run", jobs.directory, jobs.environment)


@pytest.mark.parametrize(
    ("expected", "output", "matches"),
    [
        ("a\n", "a\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n…\n", "a\nb\n", True),
        ("…\nb\n", "a\nb\n", True),
        ("…\nb\n", "b\na\n", False),
        ("x…z.\n", "xyz.\n", True),
        ("x…z.\n", "xyz,\n", False),
        ("", "a\n", False),
    ],
)
def test_the_comparison_of_outputs_can_fail(expected, output, matches):
    assert bool(re.fullmatch(pattern(expected), output)) is matches


RUN = r"run|run=cluster|run=net"
WHY_NOT = rf"not-run=({'|'.join(NOT_RUN)})"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_says_why_not(page):
    for block in blocks(page):
        runs = {"console": RUN, "sh": RUN, "python": r"|file=\w+\.py"}
        known = runs.get(block.language)
        marks = WHY_NOT if known is None else f"{known}|{WHY_NOT}"
        assert re.fullmatch(marks, block.mark), (page, block)
    # No fence is missed, and no code stands without one.
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(blocks(page))
    outside = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "~~~" not in outside
    assert not re.search(r"^\n {4,}\S", outside, re.MULTILINE)


def test_what_is_tested_instead_is_there():
    for why, instead in NOT_RUN.values():
        assert why and all((ROOT / name).is_file() for name in instead), instead


@functools.cache
def said_by_the_source() -> list[str]:
    """The texts of tfrun's code, each between two of its placeholders, of two words or more."""
    found = set()
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts = re.split(r"\{[^}]*\}|%\S*[sdfg]", node.value)
                found.update(" ".join(part.split()) for part in parts)
    return [part for part in found if len(re.findall(r"[A-Za-z]+", part)) >= 2]


def unknown(text: str) -> str:
    """The longest run of words of what a job is said to print that its source does not have."""
    text = " ".join(text.split())
    known = bytearray(len(text))
    for part in said_by_the_source():
        for found in re.finditer(re.escape(part), text):
            known[found.start() : found.end()] = bytes([1]) * len(part)
    runs: list[list[str]] = [[]]
    for word in re.finditer(r"[A-Za-z][\w/']+", text):
        if known[word.start()]:
            runs.append([])
        else:
            runs[-1].append(word.group())
    return " ".join(max(runs, key=len))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_job_is_said_to_print_stands_in_the_source(page):
    for block in blocks(page):
        if block.mark == "not-run=said":
            assert len(unknown(block.text).split()) < 6, (unknown(block.text), block.text)


def test_what_no_job_prints_is_found():
    known = "tfrun: no machine has been heard from for 5 s"
    other = "squirrels have eaten through our only cable"
    assert len(unknown(known).split()) < 6
    assert unknown(f"{known}: {other}") == other


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_of_a_page_is_used_by_its_commands(page):
    found = blocks(page)
    commands = "\n".join(block.text for block in found if block.mark.startswith("run"))
    for block in found:
        if block.mark.startswith("file="):
            assert block.mark.removeprefix("file=") in commands, block


def test_parts_of_files_can_be_read():
    readers = {"json": json.loads, "yaml": yaml.safe_load}
    parts = [b for page in PAGES for b in blocks(page) if b.language in readers]
    assert parts and all(readers[block.language](block.text) for block in parts)


@pytest.mark.parametrize(
    "block",
    [block for page in PAGES for block in blocks(page) if block.language == "python"],
    ids=lambda block: block.mark or block.text[:30],
)
def test_python_blocks_compile(block):
    compile(block.text, "block", "exec")


def test_each_code_has_an_entry_and_each_entry_a_code():
    entries = re.findall(r"^## (TFRUN-\d+): (.*)$", text_of("docs/errors.md"), re.MULTILINE)
    assert entries == list(CODES.items())


@pytest.mark.parametrize("code", CODES)
def test_each_entry_says_the_cause_and_the_fix(code):
    _, _, rest = text_of("docs/errors.md").partition(f"## {code}: ")
    entry = rest.partition("\n## ")[0]
    assert re.search(r"^\*\*Cause\.\*\* \S", entry, re.MULTILINE), entry
    assert re.search(r"^\*\*Fix\.\*\* \S", entry, re.MULTILINE), entry


def test_the_option_table_is_that_of_the_command():
    page = text_of("docs/command-line.md")
    table = page.partition("## Options")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `-")]
    documented = {
        (*sorted(re.findall(r"`(--?[A-Za-z-]+)`", names)), variable.strip("` "))
        for names, variable in rows
    }
    context = click.Context(run, **run.context_settings)
    existing = set()
    for parameter in run.get_params(context):
        if isinstance(parameter, click.Option):
            eager = parameter.is_eager  # --help and --version
            variable = "" if eager else f"TFRUN_{(parameter.name or '').upper()}"
            existing.add((*sorted([*parameter.opts, *parameter.secondary_opts]), variable))
    assert documented == existing


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("bench", "bench.bench"),
        ("doctor", "doctor.doctor"),
        ("drill", "drill.drill"),
        ("kubernetes", "render.kubernetes"),
        ("parity", "parity.parity"),
        ("slurm", "submit.slurm"),
        ("tune", "tune.tune"),
    ],
)
def test_the_option_table_of_a_verb_is_that_of_the_command(page, command):
    rows = [line for line in text_of(f"docs/{page}.md").splitlines() if line.startswith("| `-")]
    documented = {
        name for row in rows for name in re.findall(r"`(--?[A-Za-z-]+)", row.split("|")[1])
    }
    module, _, name = command.partition(".")
    parameters = getattr(importlib.import_module(f"tfrun.cli.{module}"), name).params
    options = [{*o.opts, *o.secondary_opts} for o in parameters if isinstance(o, click.Option)]
    assert [names for names in options if not names & documented] == []
    assert documented <= set().union(*options)


def test_the_api_page_has_every_public_name():
    page = text_of("docs/api.md")
    for name in tfrun.__all__:
        assert f"tfrun.{name}" in page, name
    rows = "".join(line for line in page.splitlines() if line.startswith("| `"))
    for field in dataclasses.fields(tfrun.World):
        assert f"`{field.name}`" in rows, field.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if anchor:
            assert anchor in _anchors(path), target


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE))
    for page in PAGES:
        named = re.findall(
            r"^make ([a-z]+)|`make\s([a-z]+)`", page.read_text("utf-8"), re.MULTILINE
        )
        for target in filter(None, (name for pair in named for name in pair)):
            assert target in targets, (page.name, target)


def test_the_tree_shows_the_files_as_they_are():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "tree.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
