# after: Horovod's keras_mnist_advanced.py, ported: rates and steps by the number of workers
# expects: near 0.9: its learning rate and its steps follow the number of workers, as Horovod has it
# not compared: steps, initial lr
import os

import numpy as np
import tensorflow as tf
from tensorflow import keras

strategy = tf.distribute.MultiWorkerMirroredStrategy()
size = strategy.num_replicas_in_sync
rank = int(os.environ.get("RANK", 0))
keras.utils.set_random_seed(42)

batch_size = 16
epochs = 3
steps_per_epoch = 24 // size
initial_lr = 0.01 * size
print("steps =", steps_per_epoch)

rng = np.random.RandomState(1234)
x_train = rng.normal(size=(384, 20))
y_train = (x_train @ rng.normal(size=20) > 0).astype("int32")
dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
dataset = dataset.repeat().shuffle(384, seed=1).batch(batch_size * size)

with strategy.scope():
    model = keras.Sequential(
        [keras.Input((20,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(2)])
    opt = keras.optimizers.SGD(initial_lr, momentum=0.9)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer=opt,
                  metrics=["accuracy"])


class LearningRateWarmupCallback(keras.callbacks.Callback):
    """Gradual warmup: from lr / size to lr, over the first batches."""

    def __init__(self, initial_lr, warmup_epochs, steps):
        super().__init__()
        self.initial_lr, self.total = initial_lr, warmup_epochs * steps
        self.seen = 0

    def on_train_batch_begin(self, batch, logs=None):
        if self.seen < self.total:
            factor = 1 / size * (self.seen * (size - 1) / self.total + 1)
            self.model.optimizer.learning_rate = self.initial_lr * factor
        self.seen += 1


callbacks = [LearningRateWarmupCallback(initial_lr, 1, steps_per_epoch)]
# Save checkpoints only on worker 0 to prevent other workers from corrupting them.
if rank == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint("./checkpoint-{epoch}.keras"))
verbose = 2 if rank == 0 else 0
history = model.fit(dataset, steps_per_epoch=steps_per_epoch, callbacks=callbacks, epochs=epochs,
                    verbose=verbose)
print("initial lr =", initial_lr)
print("loss =", history.history["loss"][-1])
print("files =", len([f for f in os.listdir(".") if f.startswith("checkpoint-")]) if rank == 0 else "-")
