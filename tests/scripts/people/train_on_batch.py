# after: a notebook of 2017 that trains batch by batch
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(2)
X, y = load_digits(return_X_y=True)
X = X / 16.0
X_train, y_train, X_test, y_test = X[:600], y[:600], X[600:700], y[600:700]

with strategy.scope():
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(24, activation="relu"),
         keras.layers.Dense(10, activation="softmax")]
    )
    model.compile(loss="sparse_categorical_crossentropy", optimizer="rmsprop", metrics=["accuracy"])

batch_size = 50
for epoch in range(2):
    order = np.random.permutation(len(X_train))
    losses = []
    for i in range(len(X_train) // batch_size):
        idx = order[i * batch_size : (i + 1) * batch_size]
        loss, acc = model.train_on_batch(X_train[idx], y_train[idx])
        losses.append(loss)
    print(f"epoch {epoch}: mean loss = {np.mean(losses)}, accuracy = {acc}")

print("test_on_batch loss = %.12f, accuracy = %.6f" % tuple(model.test_on_batch(X_test, y_test)))
probabilities = model.predict_on_batch(X_test)
print("rows =", len(probabilities))
print("predict_on_batch sum =", float(np.square(probabilities).sum()))
print("right =", int((probabilities.argmax(axis=1) == y_test).sum()))
model.reset_metrics()
logs = model.train_on_batch(X_train[:7], y_train[:7], return_dict=True)
print("seven rows: loss =", float(logs["loss"]))
