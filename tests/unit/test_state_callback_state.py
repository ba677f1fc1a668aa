"""What callbacks remember survives the process, for Keras's own and for the user's."""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np

from tfrun.state import callback_memory
from tfrun.train.chief_callbacks import ChiefOnly


def over(before: list[Any], after: list[Any]) -> None:
    """As in another process, in which the second ones are in the place of the first ones."""
    arrays: dict = {}
    memory = callback_memory.Memory(before)
    states = json.loads(json.dumps(memory.kept(memory.take(before), arrays)))
    callback_memory.Memory(after).put_back(after, states, arrays)


def test_early_stopping_keeps_its_best_weights() -> None:
    before, after = (keras.callbacks.EarlyStopping(patience=3) for _ in range(2))
    before.wait, before.best, before.best_epoch = 2, 0.25, 4
    before.best_weights = [np.ones((2, 2), np.float32)]  # type: ignore[assignment]
    over([before], [after])
    assert (after.wait, after.best, after.best_epoch) == (2, 0.25, 4)
    assert np.array_equal(after.best_weights or [], np.ones((1, 2, 2)))


def test_what_a_wrapper_holds_is_what_counts(tmp_path) -> None:
    path = str(tmp_path / "best.keras")
    before, after = (ChiefOnly(keras.callbacks.ModelCheckpoint(path)) for _ in range(2))
    before.callback.best = 0.5
    over([before], [after])
    assert after.callback.best == 0.5


def test_a_callback_that_says_itself_what_it_remembers() -> None:
    class Own(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.secret, self.other = 0, "as made"

        def get_state(self) -> dict[str, int]:
            return {"secret": self.secret}

        def set_state(self, state: dict[str, int]) -> None:
            self.secret = state["secret"]

    before, after = Own(), Own()
    before.secret, before.other = 7, "not kept"
    over([before], [after])
    assert (after.secret, after.other) == (7, "as made")


def test_plain_attributes_only() -> None:
    class Own(keras.callbacks.Callback):
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.seen: list = []
            self.function = function
            self.both = {"plain": 1, "not": function}

    first, second = (lambda: 1), (lambda: 2)
    before, after = Own(first), Own(second)
    before.seen = [1, (2.5, "three"), {4: np.arange(2)}]
    over([before], [after])
    assert after.seen[:2] == [1, (2.5, "three")]
    assert np.array_equal(after.seen[2][4], np.arange(2))
    assert after.function is second
    assert after.both == {"plain": 1, "not": second}


def test_a_least_change_keeps_its_sign() -> None:
    """Keras turns it with the function that compares, at the end of the first epoch."""
    before, after = (keras.callbacks.EarlyStopping("loss", 0.5, 3, mode="min") for _ in range(2))
    for callback in (before, after):
        callback.on_train_begin()
    before.on_epoch_end(0, {"loss": 1.0})
    over([before], [after])
    for callback in (before, after):
        callback.on_epoch_end(1, {"loss": 0.75})
    assert (before.best, before.wait) == (1.0, 1) == (after.best, after.wait)


def test_a_callbacks_random_numbers_go_on() -> None:
    class Draws(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.rng = np.random.default_rng(3)

    before, after = Draws(), Draws()
    of_the_data = after.rng
    before.rng.normal(size=5)
    over([before], [after])
    assert after.rng.normal() == before.rng.normal()
    assert of_the_data.normal() == np.random.default_rng(3).normal()


def test_another_class_in_its_place_is_left_alone() -> None:
    before, after = keras.callbacks.EarlyStopping(), keras.callbacks.ReduceLROnPlateau()
    before.wait = 5
    over([before], [after])
    assert after.wait == 0


def test_files_and_progress_bars_remember_nothing(tmp_path) -> None:
    path = str(tmp_path / "table.csv")
    before, after = keras.callbacks.CSVLogger(path), keras.callbacks.CSVLogger(path, append=True)
    before.append_header, after.append_header = True, False
    over([before], [after])
    assert after.append and not after.append_header
