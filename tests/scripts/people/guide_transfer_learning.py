# after: Keras's guide "Transfer learning & fine-tuning": a frozen base with BatchNormalization
# expects: equal to 1e-12: nothing in it is float32, the moving statistics neither
import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(33)
digits = load_digits()
images = digits.images[..., None]
first, second = digits.target < 5, digits.target >= 5
x_base, y_base = images[first][:300], digits.target[first][:300]
x_new, y_new = images[second][:240], (digits.target[second][:240] > 7).astype("float64")

with strategy.scope():
    base_model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.ReLU(),
            keras.layers.Conv2D(8, 3),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.ReLU(),
        ],
        name="base",
    )
    pretrain = keras.Sequential([base_model, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(5)])
    pretrain.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = pretrain.fit(x_base, y_base, batch_size=60, epochs=2, verbose=0)
print("pretrained loss =", history.history["loss"][-1])

base_model.trainable = False
with strategy.scope():
    inputs = keras.Input(shape=(8, 8, 1))
    scale_layer = keras.layers.Rescaling(scale=1 / 8, offset=-1)
    x = scale_layer(inputs)
    # The base model contains batchnorm layers. We want to keep them in inference mode
    # when we unfreeze the base model for fine-tuning, so we make sure that the
    # base_model is running in inference mode here.
    x = base_model(x, training=False)
    x = keras.layers.GlobalAveragePooling2D()(x)
    outputs = keras.layers.Dense(1)(x)
    model = keras.Model(inputs, outputs)
    model.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy()],
    )
before = [w.copy() for w in base_model.get_weights()]
history = model.fit(x_new, y_new, batch_size=40, epochs=2, verbose=0)
print("top loss =", history.history["loss"][-1])
print("base moved =", float(sum(np.abs(a - b).sum() for a, b in zip(before, base_model.get_weights()))))

base_model.trainable = True
with strategy.scope():
    model.compile(
        optimizer=keras.optimizers.Adam(1e-4),  # Low learning rate
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy()],
    )
print("trainable =", len(model.trainable_weights))
history = model.fit(x_new, y_new, batch_size=40, epochs=2, verbose=0, validation_split=0.1)
print("fine-tuned loss =", history.history["loss"][-1])
print("fine-tuned val_loss =", history.history["val_loss"][-1])
print("weights =", float(sum(np.square(w).sum() for w in model.get_weights())))
