"""`python -m tfrun.patches`: prints the table of patches, which is docs/patches.md."""

from __future__ import annotations

from collections.abc import Iterator

from tfrun.patches.patch import Patch
from tfrun.patches.table import SECTIONS

_ABOUT = """\
# What tfrun replaces in Keras and TensorFlow

<!-- written by: python -m tfrun.patches > docs/patches.md -->

Keras and TensorFlow are used as they are installed. In the processes that run your script tfrun
replaces some of their attributes before the script begins, and so does the first use of
`tfrun.strategy`, `tfrun.Dataset` and the like outside a job. This is all of it, in the order in
which it happens. Everything else that tfrun changes belongs to single objects that a script hands
to it, such as a callback by which the chief alone writes.

What is *optional* is left out, with a line in the log, where the installed version has no place for
it. Where anything else has none, the job does not start: [TFRUN-111](errors.md). Where a test is
named, it fails as soon as a patch is not needed any more.
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
    is_test = patch.until.startswith("tests/")
    yield f"  - until {f'`{patch.until}` fails' if is_test else patch.until}"


if __name__ == "__main__":
    print(page())
