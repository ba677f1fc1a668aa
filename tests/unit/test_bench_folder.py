"""What the benchmarks in bench decide themselves, without running anything."""

from __future__ import annotations

import importlib
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
