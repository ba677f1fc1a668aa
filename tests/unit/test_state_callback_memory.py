"""What callbacks change outside of them comes back, and what is a worker's own stays its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import pytest

from tfrun.data import global_random
from tfrun.job import world
from tfrun.state import callback_memory, kept_outside
from tfrun.state.callback_memory import Memory
from tfrun.train.chief_callbacks import ChiefOnly

collected: list[int] = []
settings = {"rank": 0}
large = list(range(30_000))
count = 0


class Totals:
    def __init__(self) -> None:
        self.total, self.rank = 0, 0


class Own(keras.callbacks.Callback):
    shared: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__()
        self.rank, self.number = 0, 0
        self.totals = Totals()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        global count
        count += 1
        self.number += 1
        collected.append(epoch)
        self.shared.append(epoch)
        self.totals.total += settings["rank"] + len(large)


@pytest.fixture(autouse=True)
def as_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_outside, "_told", [])
    monkeypatch.setattr(world, "_has_asked", False)
    here = world.World(round=1)
    monkeypatch.setattr(callback_memory, "world", lambda: here)
    begin_anew()


def begin_anew() -> None:
    """As a new process has it."""
    global count
    count = 0
    collected.clear()
    Own.shared.clear()
    settings["rank"] = 0


def kept(memory: Memory, callbacks: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays: dict[str, Any] = {}
    return json.loads(json.dumps(memory.kept(memory.take(callbacks), arrays))), arrays


def test_globals_and_attributes_of_classes_and_objects_come_back() -> None:
    before, memory = Own(), Memory([Own()])
    memory.begun([before])
    for epoch in range(3):
        before.on_epoch_end(epoch)
    found = kept(memory, [before])
    begin_anew()
    after = Own()
    known, totals = collected, after.totals
    Memory([after]).put_back([after], *found)
    assert (count, after.number, known, Own.shared) == (3, 3, [0, 1, 2], [0, 1, 2])
    assert after.totals is totals and totals.total == before.totals.total > 0


def test_what_nobody_changed_is_this_process_own() -> None:
    before, memory = Own(), Memory([Own()])
    memory.begun([before])
    before.on_epoch_end(0)
    found = kept(memory, [before])
    settings["rank"] = 1
    after = Own()
    after.totals.rank = 1
    Memory([after]).put_back([after], *found)
    assert settings == {"rank": 1}
    assert (after.totals.rank, after.totals.total) == (1, before.totals.total)
    assert not [name for name in found[0]["outside"] if "large" in name or "rank" in name]


@pytest.mark.parametrize("asked", [False, True])
def test_attributes_of_who_knows_its_place(asked: bool) -> None:
    """They may be this worker's own; else what was drawn once, or a time, is to be the same."""
    before, after = Own(), Own()
    memory, others = Memory([before]), Memory([after])
    if asked:
        world.note_asked("tfrun.world()")
    before.rank, after.rank = 3, 5
    memory.begun([before])
    others.begun([after])
    before.number = 7
    others.put_back([after], *kept(memory, [before]))
    assert (after.rank, after.number) == (5 if asked else 3, 7)


@pytest.mark.parametrize("asked", [False, True])
def test_what_had_not_changed_then_is_undone(asked: bool) -> None:
    """In a process that stays, whose callbacks have seen more than the state it goes on from."""
    if asked:
        world.note_asked("tfrun.world()")
    own = Own()
    memory = Memory([own])
    memory.begun([own])
    found = kept(memory, [own])
    own.on_epoch_end(0)
    memory.put_back([own], *found)
    assert own.number == 0
    if asked:  # who knows its place may collect alone
        assert (count, collected) == (1, [0])
    else:
        assert (own.totals.total, count, collected, Own.shared) == (0, 0, [], [])


def test_variables_of_functions_around_functions_come_back() -> None:
    def made() -> tuple[Any, Any]:
        seen, least = [0], None

        def on_end(epoch: int, logs: Any, told: list[int] = []) -> None:  # noqa: B006
            nonlocal least
            least = epoch if least is None else min(least, epoch)
            seen.append(epoch)
            told.append(epoch)

        return keras.callbacks.LambdaCallback(on_epoch_end=on_end), lambda: (seen, least)

    before, _ = made()
    memory = Memory([before])
    for epoch in (3, 2):
        before.on_epoch_end(epoch, {})
    found = kept(memory, [before])
    after, outcome = made()
    seen = outcome()[0]
    Memory([after]).put_back([after], *found)
    assert outcome() == ([0, 3, 2], 2) and outcome()[0] is seen
    assert after.on_epoch_end.__defaults__ == ([3, 2],)


@pytest.mark.parametrize("job_round", [0, 1])
def test_another_jobs_settings_are_its_own(job_round: int, monkeypatch: Any) -> None:
    """A job that goes on from the checkpoint of another one may have been given more patience."""
    here = world.World(round=job_round)
    monkeypatch.setattr(callback_memory, "world", lambda: here)
    before, after = (keras.callbacks.EarlyStopping(patience=number) for number in (2, 5))
    memory = Memory([before])
    memory.begun([before])
    before.wait = 1
    Memory([after]).put_back([after], *kept(memory, [before]))
    assert (after.wait, after.patience) == (1, 5 if job_round == 0 else 2)


def test_what_callbacks_only_look_at_is_not_theirs() -> None:
    """The data's own code counts there, and does so again where it is read again."""
    made, seen = 0, {"rows": 0}

    def rows() -> None:
        nonlocal made
        made, seen["rows"] = made + 1, made

    def look(epoch: int, logs: Any) -> None:
        print(epoch, made, seen["rows"], settings)

    callback = keras.callbacks.LambdaCallback(on_epoch_end=look)
    memory = Memory([callback])
    rows()
    assert kept(memory, [callback])[0]["outside"] == {}


def test_what_the_data_does_with_an_object_is_the_datas() -> None:
    """The object's methods that make batches are none that a callback has named."""

    class Data:
        def __init__(self) -> None:
            self.order, self.epoch, self.held_out = np.arange(4), 0, np.zeros(2)

        def batches(self) -> None:
            self.order[:] = self.order[::-1].copy()
            self.epoch += 1

    data, scores = Data(), []

    class Scores(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            scores.append(float(data.held_out.sum()) + epoch)

    own = [Scores()]
    memory = Memory(own)
    own[0].on_epoch_end(0)
    data.batches()
    (name,) = kept(memory, own)[0]["outside"]
    assert name.endswith("/scores")


def test_functions_that_were_made_alike_have_their_own() -> None:
    def counter() -> tuple[Any, list[int]]:
        count, all_of_it = 0, []

        def add(epoch: int, logs: Any) -> None:
            nonlocal count
            count += epoch
            all_of_it.append(count)

        return keras.callbacks.LambdaCallback(on_epoch_end=add), all_of_it

    before, after = [counter()[0] for _ in range(2)], [counter() for _ in range(2)]
    memory = Memory(before)
    for number, one in enumerate(before):
        one.on_epoch_end(number + 1, {})
    callbacks = [callback for callback, _ in after]
    Memory(callbacks).put_back(callbacks, *kept(memory, before))
    for one in callbacks:
        one.on_epoch_end(10, {})
    assert [found for _, found in after] == [[1, 11], [2, 12]]


def test_an_objects_method_as_a_callbacks_function() -> None:
    class Follows:
        def __init__(self) -> None:
            self.losses: list[float] = []
            self.array = np.zeros(2)

        def see(self, epoch: int, logs: dict[str, float]) -> None:
            self.losses.append(logs["loss"])
            self.array += 1

    def made() -> tuple[Follows, Any]:
        follows = Follows()
        return follows, keras.callbacks.LambdaCallback(on_epoch_end=follows.see)

    (_, before), (there, after) = made(), made()
    memory = Memory([before])
    before.on_epoch_end(0, {"loss": 0.5})
    Memory([after]).put_back([after], *kept(memory, [before]))
    assert (there.losses, there.array.tolist()) == ([0.5], [1.0, 1.0])


def test_what_begins_anew_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Hidden:
        __slots__ = ("value",)

    class Holds(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.each, self.hidden = iter([1, 2]), Hidden()
            self.table = (tmp_path / "table").open("w")
            self.read = (tmp_path / "table").open()

    told: list[Any] = []
    monkeypatch.setattr(kept_outside.channel, "emit", told.append)
    before, after = Holds(), Holds()
    memory = Memory([after])
    memory.put_back([after], *kept(Memory([before]), [before]))
    (notice,) = told
    names = "Holds.each (list_iterator), Holds.hidden (Hidden), Holds.table (TextIOWrapper). "
    assert names in notice.text
    told.clear()
    memory.stayed = True
    memory.put_back([after], *kept(Memory([before]), [before]))
    assert not told
    for file in (before.table, before.read, after.table, after.read):
        file.close()


def test_attributes_of_others_that_callbacks_assign_come_back() -> None:
    class Rows(keras.utils.PyDataset):
        def __init__(self) -> None:
            super().__init__()
            self.noise, self.epochs = 0.0, 0

        def on_epoch_end(self) -> None:
            self.epochs += 1

    class Harder(keras.callbacks.Callback):
        def __init__(self, rows: Rows) -> None:
            super().__init__()
            self.rows, self.epochs = rows, 0

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.epochs += 1
            self.rows.noise += 0.5
            self.model.phase = "late"  # type: ignore[union-attr]
            self.model.stop_training = True  # type: ignore[union-attr]

    def made() -> tuple[Any, Rows, Any]:
        model, rows = keras.Sequential([keras.layers.Dense(1)]), Rows()
        return model, rows, Harder(rows)

    model, rows, before = made()
    before.set_model(model)
    memory = Memory([before], model)
    before.on_epoch_end(0)
    rows.on_epoch_end()
    found = kept(memory, [before])
    model, rows, after = made()
    Memory([after], model).put_back([after], *found)
    assert (rows.noise, model.phase, after.epochs) == (0.5, "late", 1)
    # What the data itself counts is counted where it is read again, and `fit` keeps how it ended.
    assert rows.epochs == 0 and not getattr(model, "stop_training", False)


class Reports(Own):
    """Of the chief alone."""


@pytest.mark.parametrize("is_chief", [False, True])
def test_what_the_chief_alone_collects(is_chief: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays with the chief where another worker tells the state; a new one says it has none."""
    told: list[Any] = []
    monkeypatch.setattr(kept_outside.channel, "emit", told.append)
    chief, other = ChiefOnly(Reports()), ChiefOnly(Reports())
    chief._here, other._here = is_chief, False
    memory, others = Memory([chief]), Memory([other])
    memory.stayed = True
    chief.callback.on_epoch_end(0)
    found = kept(others, [other])
    chief.take_part()
    memory.put_back([chief], *found)
    assert (chief.callback.number, chief.callback.totals.total, count) == (1, 30_000, 1)
    assert [("Reports, which runs on the chief" in one.text) for one in told] == [True] * (
        not is_chief
    )
    memory.put_back([chief], *kept(memory, [chief]))
    assert chief.callback.number == 1


def test_callbacks_that_a_callback_runs_remember_as_well() -> None:
    class Runs(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.callbacks.EarlyStopping()
            self.others = [keras.callbacks.ReduceLROnPlateau(), Own()]

    before, after = Runs(), Runs()
    before.inner.best, before.others[0].wait, before.others[1].number = 0.25, 3, 4  # type: ignore
    Memory([after]).put_back([after], *kept(Memory([before]), [before]))
    found = after.inner.best, after.others[0].wait, after.others[1].number  # type: ignore
    assert found == (0.25, 3, 4)


drawn = np.random.default_rng(3)


@pytest.mark.parametrize("data", [np.zeros(1), iter([])])
def test_a_random_generator_that_callbacks_draw_from(data: Any, monkeypatch: Any) -> None:
    """It goes on as the global ones do: the training's data may draw from it as well."""
    told: list[Any] = []
    monkeypatch.setattr(kept_outside.channel, "emit", told.append)
    for name in ("_own", "_first", "_later"):
        monkeypatch.setattr(global_random, name, {})

    def draw(epoch: int, logs: Any) -> float:
        return float(drawn.normal())

    own = [keras.callbacks.LambdaCallback(on_epoch_end=draw)]
    made = drawn.bit_generator.state
    memory = Memory(own, None, data)
    draw(0, {})
    found, state = kept(memory, own), global_random.take()
    expected = draw(1, {})
    drawn.bit_generator.state = made  # as in another process
    monkeypatch.setattr(global_random, "_own", {})
    Memory(own, None, data).put_back(own, *found)
    global_random.give(state)
    assert draw(1, {}) == expected and not told


def test_one_memory_for_one_training() -> None:
    own = [Own()]
    first = callback_memory.of_call(5, own, None, None)
    assert callback_memory.of_call(5, own, None, None) is first
    assert callback_memory.of_call(6, own, None, None) is not first
