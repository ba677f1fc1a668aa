"""Which options of the command line a change touches."""

from __future__ import annotations

import pytest

from touched import changed_lines, names, touched

DIFF = """\
diff --git a/src/tfrun/state/snapshots_due.py b/src/tfrun/state/snapshots_due.py
index 1..2 100644
--- a/src/tfrun/state/snapshots_due.py
+++ b/src/tfrun/state/snapshots_due.py
@@ -3 +3 @@ def due
-    return 0
+    return 1
diff --git a/src/tfrun/cli/run.py b/src/tfrun/cli/run.py
--- a/src/tfrun/cli/run.py
+++ b/src/tfrun/cli/run.py
@@ -9 +9 @@
-        keep=keep,
+        keep=keep + 1,
diff --git a/docs/recovery.md b/docs/recovery.md
--- a/docs/recovery.md
+++ b/docs/recovery.md
@@ -1 +1 @@
+Use --grace.
"""
OPTIONS = ["snapshot_every", "keep", "grace", "seed", "ledger", "page", "plain", "strict"]


def test_the_lines_of_a_diff_that_are_about_code() -> None:
    assert changed_lines(DIFF) == {
        "src/tfrun/state/snapshots_due.py": "    return 0\n    return 1",
        "src/tfrun/cli/run.py": "        keep=keep,\n        keep=keep + 1,",
    }
    assert changed_lines("") == {}


def test_lines_count_and_so_do_files_that_handle_few_options() -> None:
    lines = changed_lines(DIFF)
    every = "".join(f"{option}={option}, " for option in OPTIONS)
    texts = {
        "src/tfrun/state/snapshots_due.py": 'VARIABLE = "TFRUN_SNAPSHOT_EVERY"',
        "src/tfrun/cli/run.py": every,  # which handles all of them: only its lines count
    }
    assert touched(OPTIONS, lines, texts) == {"snapshot_every", "keep"}
    assert touched(OPTIONS, lines, {}) == {"keep"}  # files that have been removed
    assert touched(OPTIONS, {}, {}) == set()


@pytest.mark.parametrize(
    ("option", "text", "named"),
    [
        ("checkpoint_every", "--checkpoint-every", True),
        ("checkpoint_every", "spec.checkpoint_every", True),
        ("checkpoint_every", "checkpoint_everything", False),
        ("measured", "--no-measured", True),
        ("keep", "TFRUN_KEEP", True),
        ("keep", "keep: int = 5", True),
        ("keep", "spec.keep,", True),
        ("keep", 'options["keep"]', True),
        ("keep", "# these are what we keep", False),
        ("keep", "snapshot.keep(place)", False),
        ("keep", "keeper=1", False),
    ],
)
def test_how_code_names_an_option(option: str, text: str, named: bool) -> None:
    assert names(option, text) == named
