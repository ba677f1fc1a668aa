# after: Keras's guide "Multi-GPU distributed training with TensorFlow": make_or_restore_model
# expects: equal
# not compared: Number of devices
import os

import keras
import tensorflow as tf
from sklearn.datasets import load_digits


def get_compiled_model():
    inputs = keras.Input(shape=(64,))
    x = keras.layers.Dense(32, activation="relu")(inputs)
    x = keras.layers.Dense(32, activation="relu")(x)
    outputs = keras.layers.Dense(10)(x)
    model = keras.Model(inputs, outputs)
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    return model


def get_dataset():
    batch_size = 32
    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 64).astype("float32") / 16
    x_train, y_train, x_val, y_val = x[:320], y[:320], x[320:400], y[320:400]
    x_test, y_test = x[400:600], y[400:600]
    return (
        tf.data.Dataset.from_tensor_slices((x_train, y_train)).batch(batch_size),
        tf.data.Dataset.from_tensor_slices((x_val, y_val)).batch(batch_size),
        tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(batch_size),
    )


# Create a strategy once: the guide makes a MirroredStrategy in each run.
strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(3)
print("Number of devices: {}".format(strategy.num_replicas_in_sync))
checkpoint_dir = "./ckpt"
if not os.path.exists(checkpoint_dir):
    os.makedirs(checkpoint_dir, exist_ok=True)


def make_or_restore_model():
    # Either restore the latest model, or create a fresh one if there is no checkpoint available.
    checkpoints = [checkpoint_dir + "/" + name for name in os.listdir(checkpoint_dir)]
    if checkpoints:
        latest_checkpoint = max(checkpoints, key=os.path.getctime)
        print("Restoring from", latest_checkpoint)
        return keras.models.load_model(latest_checkpoint)
    print("Creating a new model")
    return get_compiled_model()


def run_training(epochs=1):
    with strategy.scope():
        model = make_or_restore_model()
    train_dataset, val_dataset, test_dataset = get_dataset()
    callbacks = [
        keras.callbacks.ModelCheckpoint(
            filepath=checkpoint_dir + f"/ckpt-{epochs}-" + "{epoch}.keras", save_freq="epoch")
    ]
    history = model.fit(train_dataset, epochs=epochs, callbacks=callbacks,
                        validation_data=val_dataset, verbose=0)
    print("val_loss =", history.history["val_loss"][-1])
    print("test = ", model.evaluate(test_dataset, verbose=0)[0])


# Running the first time creates the model
run_training(epochs=1)
# Calling the same function again will resume from where we left off
run_training(epochs=2)
