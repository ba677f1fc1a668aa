# after: TensorFlow's parameter server guide: fit, evaluate, and predict of a handful of rows
# expects: near 0.5: each worker takes a step when it is free, from the weights as they are then
# options: --ps 1
import keras
import numpy as np
from sklearn.datasets import load_digits

import tfrun

strategy = tfrun.strategy()
keras.utils.set_random_seed(3)
X, y = load_digits(return_X_y=True)
X = X / 16.0
with strategy.scope():
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(24, activation="relu"), keras.layers.Dense(10, activation="softmax")])
    model.compile(keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(X[:640], y[:640], batch_size=32, epochs=3, verbose=0, validation_data=(X[640:740], y[640:740]))
print("epochs =", len(history.history["loss"]))
print("steps =", int(model.optimizer.iterations))
print("accuracy =", history.history["val_accuracy"][-1])
results = model.evaluate(X[740:840], y[740:840], batch_size=50, verbose=0)
print("test accuracy =", results[1])
many = model.predict(X[740:840], batch_size=16, verbose=0)
few = model.predict(X[740:745], verbose=0)
print("rows =", len(many), len(few))
print("moved =", round(float(np.abs(many[:5] - few).max()), 6))
