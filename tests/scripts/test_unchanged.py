"""The same scripts without a strategy: on several workers they print what they print on one.

Not what they print with one: Keras itself trains otherwise where nobody knows how long an epoch
is (engine/empty_step.py). What `strategy = …` and `with strategy.scope():` would have said, tfrun
finds out: see engine/adopted_script.py. A share of them is run every day; `make test-scripts` runs
all.
"""

from __future__ import annotations

import pytest
from other_people import PEOPLE, SHARES, differences, expected, new_warnings
from test_scripts import SECONDS, run
from unchanged import without_strategy

from shares import in_share

ALWAYS = ("ex_vae.py", "guide_custom_train_step.py")
# What is unchanged is not what they show.
NOT = ("ps_fit_predict.py", "ps_tutorial.py")


def cases() -> list:
    found = []
    for path in sorted(PEOPLE.glob("*.py")):
        if path.name in NOT or without_strategy(path.read_text()) is None:
            continue
        marks = []
        if path.name not in ALWAYS and not in_share(f"unchanged {path.name}", of=SHARES):
            reason = "another day's turn; make test-scripts runs it"
            marks.append(pytest.mark.skip(reason=reason))
        found.append(pytest.param(path, id=path.stem, marks=marks))
    return found


def test_most_scripts_need_no_strategy():
    assert len(cases()) > 50


def test_a_strategy_is_taken_out():
    text = "s = tf.distribute.MirroredStrategy()\nwith s.scope():\n    m = f()\n"
    assert without_strategy(text) == "pass\nif True:\n    m = f()\n"
    assert without_strategy(text + "print(s.num_replicas_in_sync)\n") is None


@pytest.mark.timeout(4 * SECONDS + 30)
@pytest.mark.parametrize("path", cases())
def test_an_unchanged_script_prints_on_many_workers_what_it_prints_on_one(path, jobs, tmp_path):
    rules = expected(path.read_text())
    plain = tmp_path / path.name
    plain.write_text(without_strategy(path.read_text()))
    one, warnings = run(plain, rules, jobs, tmp_path / "1", 1)
    for size in (2, 3):
        many, more = run(plain, rules, jobs, tmp_path / str(size), size)
        found = differences(one, many, rules.tolerance) + new_warnings(warnings, more)
        assert not found, f"{size}: {found}"
        events = (tmp_path / str(size) / "run" / "events.jsonl").read_text()
        assert "adopted: this script names no strategy" in events
