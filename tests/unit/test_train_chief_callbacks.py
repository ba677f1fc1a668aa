"""Which callbacks write, and which could act on a single batch."""

from __future__ import annotations

import keras
import pytest

from tfrun.state.callback_state import inner
from tfrun.state.fit_session import SessionCallback
from tfrun.train import callback_kinds, fit
from tfrun.train.chief_callbacks import ChiefOnly, RestoreEverywhere


class ActsOnBatch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = True


class ActsOnEpoch(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = True


class OwnCheckpoint(keras.callbacks.ModelCheckpoint):
    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)


class ActiveCheckpoint(keras.callbacks.ModelCheckpoint):
    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)


def passive():
    return [
        keras.callbacks.ModelCheckpoint("a.keras"),
        keras.callbacks.TensorBoard("logs"),
        keras.callbacks.CSVLogger("log.csv"),
        keras.callbacks.BackupAndRestore("backup", save_freq=5),
        keras.callbacks.EarlyStopping(),
        keras.callbacks.ReduceLROnPlateau(),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None),
        keras.callbacks.History(),
        keras.callbacks.ProgbarLogger(),
        OwnCheckpoint("a.keras"),
        ActsOnEpoch(),
    ]


def test_passive_callbacks_need_no_agreement_on_batches():
    callbacks = passive() + [ChiefOnly(each) for each in passive()]
    assert not callback_kinds.acts_on_batches(callbacks, callback_kinds.TRAIN_BATCH)
    assert not callback_kinds.acts_on_batches(callbacks, callback_kinds.TEST_BATCH)
    assert not callback_kinds.reads_batch_logs(callbacks)


@pytest.mark.parametrize(
    "callback",
    [
        ActsOnBatch(),
        ActiveCheckpoint("a.keras"),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None),
        keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: None),
        ChiefOnly(ActsOnBatch()),
        ChiefOnly(ChiefOnly(ActsOnBatch())),
    ],
    ids=lambda callback: type(inner(callback)).__name__,
)
def test_others_do(callback):
    assert callback_kinds.acts_on_batches([*passive(), callback], callback_kinds.TRAIN_BATCH)
    assert callback_kinds.reads_batch_logs([callback])


def test_hooks_of_each_loop_are_told_apart():
    class Tests(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            self.model.stop_evaluating = True

    assert callback_kinds.acts_on_batches([Tests()], callback_kinds.TEST_BATCH)
    assert not callback_kinds.acts_on_batches([Tests()], callback_kinds.TRAIN_BATCH)
    assert not callback_kinds.acts_on_batches([Tests()], callback_kinds.PREDICT_BATCH)


@pytest.mark.parametrize(
    "callback",
    [
        keras.callbacks.TensorBoard("logs", update_freq=10),
        keras.callbacks.ModelCheckpoint("a.keras", save_freq=10),
        ChiefOnly(keras.callbacks.TensorBoard("logs", update_freq="batch")),
    ],
)
def test_some_only_read_batch_logs(callback):
    assert callback_kinds.reads_batch_logs([callback])
    assert not callback_kinds.acts_on_batches([callback], callback_kinds.TRAIN_BATCH)


def test_writers_are_put_aside():
    for writer in passive()[:3] + [OwnCheckpoint("a.keras"), keras.callbacks.RemoteMonitor()]:
        placed = callback_kinds.for_this_worker(writer)
        assert type(placed) is ChiefOnly
        assert placed.callback is writer
    backup = keras.callbacks.BackupAndRestore("backup")
    assert type(callback_kinds.for_this_worker(backup)) is RestoreEverywhere
    for other in (keras.callbacks.EarlyStopping(), ActsOnBatch(), ChiefOnly(ActsOnBatch())):
        assert callback_kinds.for_this_worker(other) is other


def test_a_container_that_has_served_one_fit_brings_only_its_own_callbacks_to_the_next() -> None:
    own = [keras.callbacks.TerminateOnNaN(), keras.callbacks.History()]
    used = keras.callbacks.CallbackList([SessionCallback(), *own, SessionCallback()])
    assert fit._flat(used) == own
