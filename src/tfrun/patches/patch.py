"""What a patch is: attributes of Keras or TensorFlow that are replaced together, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, eq=False)
class Patch:
    """A row of the table. It is plain text: nothing of Keras or TensorFlow is imported for it.

    Attributes:
      targets: what is replaced, "package.module:Class.attribute", and by which function of this
        room, "module:function". It takes what stands there and returns what takes its place. Of
        several, with spaces between them, the next one takes what the one before it has returned.
        Targets of one patch are replaced together or not at all.
      issue: the upstream issue, or the reason in a sentence.
      until: the test that fails when upstream has repaired it, or what upstream would have to do.
      needed: whether a job cannot do without it. What is not needed and does not fit the installed
        version is left out.
      also: modules that hold the same functions under the same names, as far as this version has
        them.
      adds: upstream has no such attributes; one that it has by now stays as it is.
    """

    targets: Mapping[str, str]
    issue: str
    until: str
    needed: bool = True
    also: tuple[str, ...] = ()
    adds: bool = False


def each(owner: str, names: str, wraps: str) -> dict[str, str]:
    """Targets that the same functions replace: attributes of one owner, with spaces between."""
    return {f"{owner}{name}": wraps for name in names.split()}
