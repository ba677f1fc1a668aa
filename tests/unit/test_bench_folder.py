"""What the benchmarks in bench decide themselves, without running anything."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a file of bench by its name; forgets all of them afterwards."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (BENCH / f"{name}.py").exists():
            del sys.modules[name]


def test_contenders_are_found_by_their_names_or_parts(bench: Any) -> None:
    chosen = bench("measured").chosen
    these = {"tfrun, fit": 1, "tfrun, fit, over TCP": 2, "PyTorch, DDP": 3}
    assert chosen(these, ["tfrun, fit"]) == {"tfrun, fit": 1}
    assert chosen(these, ["ddp", "FIT"]) == these
    with pytest.raises(SystemExit, match=r"No contender is called 'ray'.*PyTorch, DDP"):
        chosen(these, ["ray"])


def test_all_that_is_measured_by_default_exists(bench: Any) -> None:
    models, networks = bench("models"), bench("networks")
    assert list(models.contenders("encoder", 2))  # nothing is installed by this
    for name in models.DEFAULT:
        assert name in models.contenders("encoder", 2)
    for name in networks.DEFAULT:
        assert name in networks.contenders(None, "encoder", networks.LINKS)
    assert set(models.MODELS) | set(networks.MODELS) <= set(models.TITLES) == set(models.PER_WORKER)


def test_a_step_is_bound_by_what_is_longer(bench: Any) -> None:
    networks = bench("networks")
    link = networks.Link(gigabits=1, milliseconds=5)
    assert networks.bound(400, 100_000_000, link) == pytest.approx(800)
    assert networks.bound(900, 100_000_000, link) == 900


def test_contenders_are_killed_by_turns_each_at_the_next_place(bench: Any) -> None:
    recovery, killed = bench("recovery"), []

    def contender(name: str) -> Any:
        def kills(numbers: Sequence[int]) -> list[Any]:
            killed.extend((name, number) for number in numbers)
            if name == "fails" and numbers[0]:
                raise bench("harness").DidNotRun("no new step")
            return [recovery.Recovery(seconds=n, redone=0) for n in numbers]

        return kills

    these = {name: contender(name) for name in ("a", "fails", "b")}
    found, not_run = recovery.by_turns(these, 3)
    assert killed == [
        *(("a", 0), ("fails", 0), ("b", 0)),
        *(("a", 1), ("fails", 1), ("b", 1)),
        *(("a", 2), ("b", 2)),
    ]
    assert {name: [kill.seconds for kill in all] for name, all in found.items()} == {
        "a": [0, 1, 2],
        "b": [0, 1, 2],
    }
    assert not_run == {"fails": "no new step"}


def test_kills_fall_on_every_place_of_an_epoch_and_of_ten_steps(bench: Any) -> None:
    steps = bench("steps")
    places = [steps.before(number) for number in range(50)]
    assert sorted(places) == list(range(50, 100))
    assert len({place % 10 for place in places[:10]}) == 10


def test_each_worker_counts_its_own_bytes_or_all_of_the_machine(bench: Any, tmp_path: Path) -> None:
    read = bench("measured")._read
    for rank, sent in enumerate(([9, 40, 60], [9, 40, 60])):
        text = f'{{"first_step": {rank}, "memory": {rank}, "sent": {sent}, "epochs": 3}}'
        (tmp_path / f"rank-{rank}.json").write_text(text)
    assert read(tmp_path, False, [1.0, 2.0]).sent == [20, 30]
    assert read(tmp_path, True, [1.0, 2.0]).sent == [40, 60]
    assert read(tmp_path, True, [1.0, 2.0]).first_step == 1
    # A worker that started again has measured only what came then.
    with pytest.raises(bench("harness").DidNotRun, match="started again"):
        read(tmp_path, True, [2.0])


def test_the_tables_of_the_documentation_are_what_was_measured(bench: Any) -> None:
    tables = bench("tables")
    measured = json.loads((BENCH / "results" / "latest.json").read_text())
    names = set()
    for page, text in tables.pages():
        assert tables.filled(text, measured) == text, f"{page.name}: run bench/tables.py"
        names |= set(re.findall("<!-- table: (.+?) -->", text))
    assert names >= set(bench("summary").TABLES)
    assert names <= set(measured) | set(bench("summary").TABLES)


def test_the_picture_shows_what_the_short_tables_say(bench: Any) -> None:
    summary = bench("summary")
    measured = json.loads((BENCH / "results" / "latest.json").read_text())
    values = [
        value for name in summary.MODELS for value, _ in summary.samples(measured, name).values()
    ]
    values += [seconds["median"] for _, seconds, _ in summary.kills(measured)]
    drawn = (BENCH.parent / "docs" / "images" / "speed.svg").read_text()
    for value in values:
        assert f"<!-- {summary.number(value)} -->" in drawn, "run bench/plots.py"


def test_a_short_table_has_the_models_that_were_measured(bench: Any) -> None:
    summary = bench("summary")
    for name, table in summary.TABLES.items():
        if name != "summary, machine":
            assert table({}) == "Not measured on this machine yet."
    failed = {"seed CNN against its peers": {"unit": "ms a step", "results": {}}}
    assert summary.speed(failed) == "Not measured on this machine yet."
    ours, alone = {"median": 100, "repeats": 3}, {"median": 80, "repeats": 3}
    results = {"tfrun, fit, Keras 3": ours, "tfrun, one worker alone": alone}
    small = {"seed CNN against its peers": {"unit": "ms a step", "results": results}}
    *_, row = summary.speed(small).splitlines()
    assert row == "| small CNN | 64 | 1,280 |  |  | 800 ¹ | 3 |"
    # The benchmark of larger models counts epochs; each of its runs starts once.
    large = {
        "ResNet50, 96x96": {"unit": "ms a step", "results": {"tfrun, fit, Keras 3": ours}},
        "ResNet50, 96x96, start to first step": {
            "unit": "s",
            "results": {"tfrun, fit, Keras 3": {"median": 20.5, "repeats": 1}},
        },
    }
    assert summary.speed(large).endswith("| 1, of 3 epochs |")
    assert summary.quantity(large, "start to first step").endswith("| 20.5 |  |  |  | 1 |")


def test_the_short_table_of_deaths_has_each_model_that_was_measured(bench: Any) -> None:
    kill, redone = {"median": 0.9, "repeats": 5}, {"median": 0.0, "repeats": 5}
    name = "tfrun, Keras 3, workers stay"
    measured = {
        "SIGKILL to first new step, ResNet50": {"unit": "s", "results": {name: kill}},
        "steps redone, ResNet50": {"unit": "steps a kill", "results": {name: redone}},
    }
    *_, row = bench("summary").deaths(measured).splitlines()
    assert row == "| ResNet50 | tfrun, the other one stays | 0.9 | 0 | 5 |"
