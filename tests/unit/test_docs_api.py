"""The docstrings of the public names, of which the API reference is made: nothing is left out."""

from __future__ import annotations

import logging
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import griffe
import pytest
import yaml

import tfrun
from docs_blocks import ROOT

PAGE = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
# A name and, of a class, which of its members the page shows.
SHOWN: dict[str, list[str]] = {
    name: (yaml.safe_load(options) or {}).get("options", {}).get("members", []) if options else []
    for name, options in re.findall(r"^::: tfrun\.(\w+)\n((?:    .*\n)*)", PAGE, re.M)
}
PACKAGE = griffe.load("tfrun", search_paths=[str(ROOT / "src")], docstring_parser="google")
VALUES = {"__version__"}  # what is no function and no class


def objects() -> Iterator[tuple[str, Any]]:
    for name, members in SHOWN.items():
        if name in VALUES:
            continue
        found: Any = PACKAGE[name]
        found = found.final_target if found.is_alias else found
        yield name, found
        for member in members:
            yield f"{name}.{member}", found.all_members[member]


OBJECTS = dict(objects())
# By class methods; by tfrun itself.
MADE_OTHERWISE = {"Dataset", "TfrunError"}


def sections(found: Any) -> dict[str, Any]:
    """The parts of a docstring by their kind; `title` of an admonition, such as "example"."""
    parsed = found.docstring.parse("google") if found.docstring else []
    return {s.title.lower() if s.kind.value == "admonition" else s.kind.value: s for s in parsed}


def parameters(found: Any) -> list[str]:
    """The names of what a function takes, or the class when it is made by a person."""
    if found.is_class:
        made_by_person = "dataclass" not in str([d.value for d in found.decorators])
        init = found.members.get("__init__") if made_by_person else None
        return [p.name for p in init.parameters if p.name != "self"] if init else []
    if not found.is_function:
        return []
    names = [p.name for p in found.parameters if p.name not in ("self", "cls")]
    return [name.lstrip("*") for name in names]


def test_the_page_has_every_public_name() -> None:
    assert sorted(SHOWN) == sorted(tfrun.__all__)


@pytest.mark.parametrize("name", OBJECTS)
def test_a_docstring_has_all_its_parts(name: str, caplog: pytest.LogCaptureFixture) -> None:
    found = OBJECTS[name]
    with caplog.at_level(logging.WARNING):
        has = sections(found)
    assert not caplog.records, caplog.text  # what griffe cannot read
    first = found.docstring.value.partition("\n")[0]
    assert first.endswith((".", ":")), first

    written = [p.name.lstrip("*") for p in has["parameters"].value] if "parameters" in has else []
    if name not in MADE_OTHERWISE:
        assert written == parameters(found)
    for part in has["parameters"].value if "parameters" in has else ():
        assert part.description.strip(), part.name

    if found.is_function and str(found.returns or "None") not in ("None", "Self"):
        said = {"returns", "yields"} & has.keys() or re.match(r"Returns|Makes|Yields", first)
        assert said, "what it gives is not said"
    codes = set(re.findall(r"TFRUN-\d{3}", found.docstring.value))
    assert not codes or "raises" in has or name == "TfrunError"
    if "." not in name or found.is_function:
        assert "example" in has and "```python" in has["example"].value.contents
        code = has["example"].value.contents
        lines = re.search(r"```python\n(.*?)```", code, re.S)[1]  # type: ignore[index]
        compile(textwrap.dedent(lines), name, "exec")


@pytest.mark.parametrize("name", [n for n, f in OBJECTS.items() if f.is_class])
def test_each_field_of_a_class_is_described(name: str) -> None:
    has = sections(OBJECTS[name])
    wanted = [
        m.name
        for m in OBJECTS[name].members.values()
        if m.is_attribute and m.annotation is not None and "property" not in m.labels
    ]
    written = [a.name for a in has["attributes"].value] if "attributes" in has else []
    public = [n for n in wanted if not n.startswith("_")]
    if name in ("World", "Position"):
        assert written == public
