"""One worker alone wants to stop: in a hook of an epoch or a batch, or from a signal's handler."""

import signal

import keras
from callbacks_common import RANK, finish, model_of, train

result = {}


class StopOn(keras.callbacks.Callback):
    """Wants to stop on one worker only, from its own clock or data."""

    def __init__(self, rank, epoch, batch=None):
        super().__init__()
        self.mine, self.epoch, self.batch = rank == RANK, epoch, batch

    def on_epoch_begin(self, epoch, logs=None):
        self.now = epoch

    def on_epoch_end(self, epoch, logs=None):
        if self.batch is None and self.mine and epoch == self.epoch:
            self.model.stop_training = True


class StopOnBatch(StopOn):
    def on_train_batch_end(self, batch, logs=None):
        if self.mine and self.now == self.epoch and batch >= self.batch:
            self.model.stop_training = True


train(result, "epoch_worker_1", StopOn(1, epoch=2))
train(result, "epoch_chief", StopOn(0, epoch=1))
train(result, "batch_worker_1", StopOnBatch(1, epoch=1, batch=1))
train(
    result,
    "lambda",
    keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: setattr(
            stopped, "stop_training", RANK == 1 and batch == 2
        )
    ),
    model=(stopped := model_of(optimizer="sgd")),
)
# A callback that one worker alone has been given.
train(result, "chief_has_it", *([StopOnBatch(0, epoch=1, batch=0)] if RANK == 0 else []))

# A signal's handler on one worker, where nothing asks on batches: kept until the epoch's end.
signalled = model_of(optimizer="sgd")
signal.signal(signal.SIGUSR1, lambda *_: setattr(signalled, "stop_training", True))


class Sender(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1 and RANK == 1:
            signal.raise_signal(signal.SIGUSR1)


train(result, "signal", Sender(), model=signalled)

finish(runs=result)
