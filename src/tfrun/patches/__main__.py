"""`python -m tfrun.patches`: prints the table of patches, which is docs/patches.md."""

from __future__ import annotations

from collections.abc import Iterator

from tfrun.patches.patch import Patch
from tfrun.patches.table import SECTIONS

_ABOUT = """\
# What tfrun replaces in Keras and TensorFlow

<!-- written by: python -m tfrun.patches > docs/patches.md -->

tfrun uses Keras and TensorFlow as they are installed. In the processes that run your script it
replaces some of their attributes before the script begins; outside a job the first use of
`tfrun.strategy`, `tfrun.Dataset` and the like does that. This page lists all of them, in the order
in which they are replaced. Everything else that tfrun changes belongs to single objects that a
script passes to it, such as a callback that is to write on the chief only.

If the installed version has no place for an *optional* patch, tfrun leaves it out, and a line in
the log says so. If it has no place for any other one, the job does not start:
[TFRUN-111](errors.md). A test that is named here fails as soon as its patch is no longer needed.
"""


def page() -> str:
    """Returns the table as a page in Markdown."""
    sections = (
        f"## {title}\n\n" + "\n".join(line for patch in patches for line in _lines(patch))
        for title, patches in SECTIONS.items()
    )
    return "\n\n".join((_ABOUT.rstrip(), *sections))


def _lines(patch: Patch) -> Iterator[str]:
    is_link = patch.issue.startswith("https:")
    why = patch.issue if is_link else patch.issue[0].upper() + patch.issue[1:]
    yield f"- {why}." + ("" if patch.needed else " *(optional)*")
    yield from (f"  - `{target}`" for target in patch.targets)
    if patch.also:
        modules = ", ".join(f"`{module}`" for module in patch.also)
        yield f"  - the same functions in {modules}"
    if patch.until.startswith("never"):
        yield f"  - stays{patch.until.removeprefix('never')}"
    else:
        is_test = patch.until.startswith("tests/")
        yield f"  - until {f'`{patch.until}` fails' if is_test else patch.until}"


if __name__ == "__main__":
    print(page())
