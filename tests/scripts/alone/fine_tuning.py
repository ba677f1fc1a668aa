# after: Keras's guide "Transfer learning & fine-tuning": a frozen base, then all of it
# expects: equal
import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(3)
rng = np.random.default_rng(3)
x = rng.random((96, 12, 12, 3)) * 255
y = (x[:, :6].mean((1, 2, 3)) > x[:, 6:].mean((1, 2, 3))).astype("float32")


def pretrained_base():
    inputs = keras.Input((12, 12, 3))
    h = layers.Conv2D(8, 3, activation="relu", padding="same")(inputs)
    h = layers.MaxPooling2D()(h)
    h = layers.Conv2D(8, 3, activation="relu", padding="same")(h)
    base = keras.Model(inputs, h, name="base")
    top = keras.Sequential([base, layers.GlobalMaxPooling2D(), layers.Dense(3, "softmax")])
    top.compile("adam", "sparse_categorical_crossentropy")
    top.fit(x / 255, rng.integers(0, 3, 96), batch_size=32, verbose=0, shuffle=False)
    base.save_weights("base.weights.h5")
    return base


base_model = pretrained_base()
base_model.load_weights("base.weights.h5")
base_model.trainable = False
inputs = keras.Input(shape=(12, 12, 3))
scale_layer = layers.Rescaling(scale=1 / 127.5, offset=-1)
h = base_model(scale_layer(inputs), training=False)
h = layers.GlobalAveragePooling2D()(h)
outputs = layers.Dense(1)(h)
model = keras.Model(inputs, outputs)
frozen = [w.copy() for w in base_model.get_weights()]
model.compile(
    optimizer=keras.optimizers.Adam(1e-2),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy()])
first = model.fit(x, y, batch_size=24, epochs=2, validation_split=0.25, verbose=0, shuffle=False)
print("frozen =", int(all((a == b).all() for a, b in zip(frozen, base_model.get_weights()))))

base_model.trainable = True
for layer in base_model.layers[:2]:
    layer.trainable = False
model.compile(
    optimizer=keras.optimizers.Adam(1e-4),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy()])
print("trainable =", len(model.trainable_weights))
second = model.fit(
    x, y, batch_size=24, epochs=4, initial_epoch=first.epoch[-1] + 1,
    validation_split=0.25, verbose=0, shuffle=False)
acc = first.history["val_binary_accuracy"] + second.history["val_binary_accuracy"]
loss = first.history["loss"] + second.history["loss"]
print("epochs =", len(loss))
for value in loss:
    print("loss =", value)
print("val accuracy =", acc[-1])
print("base sum =", float(sum(np.abs(w).sum() for w in base_model.get_weights())))
