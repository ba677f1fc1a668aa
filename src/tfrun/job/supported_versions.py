"""The versions of TensorFlow and Keras that tfrun works with: those that its tests have run with.

tfrun repairs parts of both that are not public, so that each end is a fact and no guess. An older
one is refused; a newer one is tried, and said to be so.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import NamedTuple


class Tested(NamedTuple):
    """The first and the last release of a program that all tests have passed with."""

    lowest: tuple[int, int]
    newest: tuple[int, int]

    def __str__(self) -> str:
        return " to ".join(".".join(map(str, release)) for release in self)


TESTED = {
    "TensorFlow": Tested((2, 18), (2, 21)),
    "Keras": Tested((3, 12), (3, 15)),
}
# Under which names they are installed.
DISTRIBUTIONS = {
    "TensorFlow": ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly"),
    "Keras": ("keras", "keras-nightly"),
}


def version_of(distribution: str) -> str:
    """Returns the version of an installed distribution, without importing it; "" of none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def distribution_of(program: str) -> tuple[str, str]:
    """Returns the distribution and the version of a key of `TESTED`; "" and "" of none."""
    found = ((name, version_of(name)) for name in DISTRIBUTIONS[program])
    return next(((name, version) for name, version in found if version), ("", ""))


def installed() -> dict[str, str]:
    """Returns the versions that are there, by program; imports none of them."""
    found = {program: distribution_of(program)[1] for program in TESTED}
    return {program: version for program, version in found.items() if version}


def release(version: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def newer(programs: Mapping[str, str]) -> str:
    """Returns the words for programs that are newer than what was tested; "" if none is.

    Args:
      programs: versions by program, of which those in `TESTED` count.
    """
    found = [
        f"{program} {programs[program]!s:.40} is newer than those tfrun was tested with ({tested})"
        for program, tested in TESTED.items()
        if release(programs.get(program, "")) > tested.newest
    ]
    return ", ".join(found)
