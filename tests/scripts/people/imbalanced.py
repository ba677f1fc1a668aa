# after: TensorFlow's tutorial "Classification on imbalanced data": METRICS at the top of the file
# expects: equal
import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(7)

rng = np.random.RandomState(0)
features = rng.normal(size=(900, 12))
labels = (features[:, 0] + 0.5 * features[:, 3] + rng.normal(scale=0.7, size=900) > 1.9).astype(int)
neg, pos = np.bincount(labels)
print(f"Examples: Total: {neg + pos} Positive: {pos}")

train_x, test_x, train_y, test_y = train_test_split(features, labels, test_size=0.2, random_state=1)
train_x, val_x, train_y, val_y = train_test_split(train_x, train_y, test_size=0.2, random_state=2)
scaler = StandardScaler()
train_x = np.clip(scaler.fit_transform(train_x), -5, 5)
val_x = np.clip(scaler.transform(val_x), -5, 5)
test_x = np.clip(scaler.transform(test_x), -5, 5)
train_y, val_y, test_y = (part.reshape(-1, 1) for part in (train_y, val_y, test_y))

METRICS = [
    keras.metrics.BinaryCrossentropy(name="cross entropy"),
    keras.metrics.MeanSquaredError(name="Brier score"),
    keras.metrics.TruePositives(name="tp"),
    keras.metrics.FalsePositives(name="fp"),
    keras.metrics.TrueNegatives(name="tn"),
    keras.metrics.FalseNegatives(name="fn"),
    keras.metrics.BinaryAccuracy(name="accuracy"),
    keras.metrics.Precision(name="precision"),
    keras.metrics.Recall(name="recall"),
    keras.metrics.AUC(name="auc"),
    keras.metrics.AUC(name="prc", curve="PR"),
]


def make_model(metrics=METRICS, output_bias=None):
    if output_bias is not None:
        output_bias = keras.initializers.Constant(output_bias)
    model = keras.Sequential(
        [
            keras.layers.Dense(16, activation="relu", input_shape=(train_x.shape[-1],)),
            keras.layers.Dense(1, activation="sigmoid", bias_initializer=output_bias),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=1e-2),
        loss=keras.losses.BinaryCrossentropy(),
        metrics=metrics,
    )
    return model


def early_stopping():
    return keras.callbacks.EarlyStopping(
        monitor="val_prc", patience=2, mode="max", restore_best_weights=True
    )


with strategy.scope():
    model = make_model(output_bias=np.log([pos / neg])[0])
initial_weights = os.path.join(tempfile.mkdtemp(), "initial.weights.h5")
model.save_weights(initial_weights)
history = model.fit(
    train_x, train_y, batch_size=64, epochs=6, callbacks=[early_stopping()],
    validation_data=(val_x, val_y), verbose=0,
)
for name, value in zip(model.metrics_names, model.evaluate(test_x, test_y, batch_size=64, verbose=0)):
    print(name, ": ", value)
results = model.evaluate(test_x, test_y, batch_size=64, verbose=0, return_dict=True)
for name, value in results.items():
    print(f"{name} = {value}")
print("epochs =", len(history.history["loss"]))
print("last val_prc =", history.history["val_prc"][-1])
print("weights =", sum(float(np.abs(w).sum()) for w in model.get_weights()))

with strategy.scope():
    weighted_model = make_model()
weighted_model.load_weights(initial_weights)
total = neg + pos
weighted_model.fit(
    train_x, train_y, batch_size=64, epochs=3, callbacks=[early_stopping()], verbose=0,
    validation_data=(val_x, val_y), class_weight={0: total / neg / 2, 1: total / pos / 2},
)
for name, value in weighted_model.evaluate(test_x, test_y, verbose=0, return_dict=True).items():
    print(f"weighted {name} = {value}")
print("weighted predictions =", weighted_model.predict(test_x, batch_size=50, verbose=0).sum())
