"""A worker that stays reads on where the others go on: each sample once, whatever the data."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.common import global_state
from test_data_replicas import (
    KINDS,
    REPLICAS,
    Step,
    evaluate,
    fit,
    generator,
    pipeline,
    shuffled,
    worker,
)

from tfrun.data.keras import division, epochs_in_sequence
from tfrun.data.keras.feed import FeedEpochIterator
from tfrun.data.keras.fit_plan import FitPlan, Resume
from tfrun.job.settings import settings

__all__ = ["worker"]
EPOCHS = 3
READ = {
    kind: KINDS[kind]
    for kind in ("pipeline", "pipeline, mapped", "pipeline without an end", "PyDataset")
}
READ["generator"] = lambda: fit(x=generator(3 * EPOCHS), steps_per_epoch=3)


class Cut(Exception):
    """A peer has gone."""


def of_step(pieces: Any) -> Step:
    """The leaves of the pieces of a step."""
    found = []
    for piece in pieces:
        leaves = [one.numpy() for one in tf.nest.flatten(piece) if one is not None]
        found.append(leaves)
    return found


def read(
    iterator: Any, epochs: range, found: list[Step], until: tuple[int, int] = (EPOCHS, 0)
) -> None:
    """Reads epochs as Keras's `fit` does, until it is cut off in an epoch's step, which is read."""
    iterator.reset()
    for epoch in epochs:
        with iterator.catch_stop_iteration():
            for begin, end, pieces in iterator:
                for step in range(begin, end + 1):
                    made = of_step(pieces.own())
                    if (epoch, step) == until:
                        raise Cut
                    found.append(made)


def same(one: list[Step], other: list[Step]) -> bool:
    leaves, others = (list(itertools.chain(*itertools.chain(*steps))) for steps in (one, other))
    return len(one) == len(other) and all(map(np.array_equal, leaves, others))


def anew(worker, kind: str) -> tuple[FitPlan, Any]:
    """The plan and the epoch iterator of a `fit`."""
    global_state.clear_session()
    strategy = worker(0, 1, in_place="on")
    plan = FitPlan(epochs=EPOCHS)
    with plan.runs():
        return plan, FeedEpochIterator(distribute_strategy=strategy, **READ[kind]())


def again(plan: FitPlan, iterator: Any, resume: Resume | None) -> FitPlan:
    """The plan of the same `fit` in another round, by which the same iterator is read."""
    other = FitPlan(epochs=EPOCHS, resume=resume)
    plan.again(other)
    with other.runs():
        assert FeedEpochIterator(distribute_strategy=None, class_weight=None) is iterator
    return other


def undisturbed(worker, kind: str) -> tuple[list[Step], int]:
    """All steps, and how many there are in an epoch."""
    _, iterator = anew(worker, kind)
    found: list[Step] = []
    read(iterator, range(EPOCHS), found)
    assert len(found) % EPOCHS == 0
    return found, len(found) // EPOCHS


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("kind", READ)
def test_it_reads_on_from_the_last_whole_step(kind: str, worker) -> None:
    wanted, steps = undisturbed(worker, kind)
    for epoch, step in ((0, 0), (1, steps - 1)):
        for done in range(2):  # the step that was cut off: not by others either; by another one
            plan, iterator = anew(worker, kind)
            found: list[Step] = []
            with pytest.raises(Cut):
                read(iterator, range(EPOCHS), found, (epoch, step))
            found = wanted[: len(found) + done]
            again(plan, iterator, Resume(epochs=epoch, steps=step + done))
            read(iterator, range(epoch, EPOCHS), found)
            assert same(found, wanted), (epoch, step, done)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("kind", READ)
def test_it_is_cut_off_twice_in_a_step_and_goes_on_behind_others(kind: str, worker) -> None:
    wanted, steps = undisturbed(worker, kind)
    plan, iterator = anew(worker, kind)
    last = steps - 1
    with pytest.raises(Cut):
        read(iterator, range(EPOCHS), [], (1, last))
    plan = again(plan, iterator, Resume(epochs=1, steps=last))
    with pytest.raises(Cut):
        read(iterator, range(1, EPOCHS), [], (1, last))
    # The others are at the epoch's end, and then in the next one.
    plan = again(plan, iterator, Resume(epochs=1, steps=steps, trained=True))
    found: list[Step] = []
    with pytest.raises(Cut):
        read(iterator, range(1, EPOCHS), found, (2, 0))
    assert not found
    again(plan, iterator, Resume(epochs=2))
    read(iterator, range(2, EPOCHS), found)
    assert same(found, wanted[2 * steps :])


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("kind", READ)
def test_a_successor_goes_on_from_any_later_place(kind: str, worker, monkeypatch) -> None:
    wanted, steps = undisturbed(worker, kind)
    for epoch, step in ((0, steps - 1), (1, 0), (2, 1)):
        plan, iterator = anew(worker, kind)
        with pytest.raises(Cut):
            read(iterator, range(EPOCHS), [], (0, 0))  # its rehearsal
        again(plan, iterator, Resume(epochs=epoch, steps=step))
        found: list[Step] = []
        read(iterator, range(epoch, EPOCHS), found)
        assert same(found, wanted[epoch * steps + step :]), (epoch, step)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_it_begins_again_before_its_first_step(worker) -> None:
    wanted, _ = undisturbed(worker, "generator")
    plan, iterator = anew(worker, "generator")
    with pytest.raises(Cut):
        read(iterator, range(EPOCHS), [], (0, 0))
    again(plan, iterator, None)
    found: list[Step] = []
    read(iterator, range(EPOCHS), found)
    assert same(found, wanted)


def test_of_an_execution_what_is_left_is_given_again(worker) -> None:
    def made() -> tuple[FitPlan, Any]:
        strategy = worker(0, 1, in_place="on")
        plan = FitPlan(epochs=1)
        options = fit(x=generator(), steps_per_epoch=6, steps_per_execution=3)
        with plan.runs():
            return plan, FeedEpochIterator(distribute_strategy=strategy, **options)

    wanted: list[Step] = []
    read(made()[1], range(1), wanted)
    plan, iterator = made()
    with pytest.raises(Cut):
        read(iterator, range(1), [], (0, 4))
    again(plan, iterator, Resume(steps=4))
    iterator.reset()
    executions = [(begin, end, [of_step(p.own()) for _ in range(end + 1 - begin)])
                  for begin, end, p in iterator]  # fmt: skip
    ((begin, end, found),) = executions
    assert (begin, end) == (4, 5) and same(found, wanted[4:])


VALIDATIONS = {
    "shuffled": lambda: evaluate(x=shuffled()),
    "generator": lambda: evaluate(x=generator(9), steps_per_epoch=3),
    "plain": lambda: evaluate(x=pipeline()),
}


@pytest.mark.parametrize("kind", VALIDATIONS)
def test_a_validation_is_done_again_from_its_beginning(kind: str, worker) -> None:
    def iterator_of() -> Any:
        strategy = worker(0, 1, in_place="on")
        return FeedEpochIterator(distribute_strategy=strategy, **VALIDATIONS[kind]())

    def validate(iterator: Any, epoch: int, until: tuple[int, int] = (EPOCHS, 0)) -> list[Step]:
        iterator.reset()
        iterator.validates_in(epoch)
        found: list[Step] = []
        with iterator.catch_stop_iteration():
            for begin, _, pieces in iterator:
                found.append(of_step(pieces.own()))
                if (epoch, begin) == until:
                    raise Cut
        return found

    whole = iterator_of()
    wanted = [validate(whole, epoch) for epoch in range(EPOCHS)]
    assert (kind == "plain") == same(wanted[0], wanted[1])
    cut = iterator_of()
    assert same(validate(cut, 0), wanted[0])
    cut.reset()
    cut.validates_in(1)  # and a peer goes before its first batch
    cut.again(wanted=True)
    for step in (1, 0):
        with pytest.raises(Cut):
            validate(cut, 1, (1, step))
        cut.again(wanted=True)
    assert same(validate(cut, 1), wanted[1])
    cut.again(wanted=True)  # its end was reached, that of the epoch was not
    assert same(validate(cut, 1), wanted[1])
    cut.forget()
    assert same(validate(cut, 2), wanted[2]) and not cut.why_not_again


def test_a_validation_that_is_too_large_is_not_kept(worker, monkeypatch) -> None:
    monkeypatch.setattr(epochs_in_sequence, "KEPT_BYTES", 200)
    strategy = worker(0, 1, in_place="on")
    iterator = FeedEpochIterator(distribute_strategy=strategy, **VALIDATIONS["shuffled"]())
    iterator.reset()
    iterator.validates_in(0)
    with iterator.catch_stop_iteration():
        for _, _, pieces in iterator:
            assert len(pieces.own()) == REPLICAS
    assert "0 MiB" in iterator.why_not_again
    iterator.forget()
    assert not iterator.why_not_again


def test_only_workers_that_may_stay_read_what_others_hold(worker) -> None:
    strategy = worker(0, 2)
    assert not division.reads_all(strategy, "replicas")
    strategy = worker(0, 2, in_place="on")
    assert settings().stays
    assert division.reads_all(strategy, "replicas") and not division.reads_all(strategy, "workers")
