# after: TensorFlow's tutorial "Overfit and underfit": many models, schedules, histories by name
# expects: near 0.15: the last of its models has Dropout, and each replica drops units of its own
import keras
import numpy as np
import tensorflow as tf
from keras import layers, regularizers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(12)

FEATURES, N_VALIDATION, N_TRAIN, BATCH_SIZE = 10, 100, 300, 50
STEPS_PER_EPOCH = N_TRAIN // BATCH_SIZE
rng = np.random.default_rng(1)
features = rng.normal(size=(N_TRAIN + N_VALIDATION, FEATURES))
labels = (np.sin(features[:, 0]) + features[:, 1] ** 2 > 0.8).astype("float64")[:, None]
packed = tf.data.Dataset.from_tensor_slices((features, labels))
validate_ds = packed.take(N_VALIDATION).cache().batch(BATCH_SIZE)
train_ds = packed.skip(N_VALIDATION).take(N_TRAIN).cache()
train_ds = train_ds.shuffle(N_TRAIN, seed=2).repeat().batch(BATCH_SIZE)

lr_schedule = keras.optimizers.schedules.InverseTimeDecay(
    0.01, decay_steps=STEPS_PER_EPOCH * 10, decay_rate=1, staircase=False)


def get_optimizer():
    return keras.optimizers.Adam(lr_schedule)


def get_callbacks(name):
    return [keras.callbacks.EarlyStopping(monitor="val_binary_crossentropy", patience=200)]


def compile_and_fit(build, name, optimizer=None, max_epochs=3):
    with strategy.scope():
        model = build()
        model.compile(
            optimizer=optimizer or get_optimizer(),
            loss=keras.losses.BinaryCrossentropy(from_logits=True),
            metrics=[keras.metrics.BinaryCrossentropy(from_logits=True, name="binary_crossentropy"),
                     "accuracy"],
        )
    return model.fit(train_ds, steps_per_epoch=STEPS_PER_EPOCH, epochs=max_epochs,
                     validation_data=validate_ds, callbacks=get_callbacks(name), verbose=0)


def tiny():
    return keras.Sequential([layers.Input((FEATURES,)), layers.Dense(16, activation="elu"), layers.Dense(1)])


def l2():
    l2 = regularizers.l2(0.001)
    return keras.Sequential(
        [layers.Input((FEATURES,)), layers.Dense(32, activation="elu", kernel_regularizer=l2),
         layers.Dense(32, activation="elu", kernel_regularizer=l2), layers.Dense(1)])


def combined():
    return keras.Sequential(
        [layers.Input((FEATURES,)), layers.Dense(32, activation="elu"), layers.Dropout(0.5),
         layers.Dense(32, activation="elu"), layers.Dropout(0.5), layers.Dense(1)])


size_histories = {}
size_histories["Tiny"] = compile_and_fit(tiny, "sizes/Tiny")
size_histories["l2"] = compile_and_fit(l2, "regularizers/l2")
size_histories["combined"] = compile_and_fit(combined, "regularizers/combined")
for name, history in size_histories.items():
    for key in ("loss", "binary_crossentropy", "val_loss", "val_accuracy"):
        print(f"{name} {key} = {history.history[key][-1]}")
