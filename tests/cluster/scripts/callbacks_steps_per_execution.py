"""One worker asks to stop within an execution of several steps."""

import keras
from callbacks_common import RANK, dataset, finish, model_of


class StopOnBatch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.now = epoch

    def on_train_batch_end(self, batch, logs=None):
        if RANK == 1 and self.now == 1 and batch >= 2:
            self.model.stop_training = True


model = model_of(steps_per_execution=2)
history = model.fit(dataset(), epochs=6, callbacks=[StopOnBatch()]).history
finish(history=history, steps=int(model.optimizer.iterations.numpy()))
