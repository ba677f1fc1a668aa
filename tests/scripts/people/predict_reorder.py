# after: a Kaggle submission: predict in shuffled order, undo it, predict from datasets, too
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(19)
X, y = load_digits(return_X_y=True)
X = X / 16.0
X_train, y_train, X_test = X[:450], y[:450], X[450:553]
with strategy.scope():
    inp = keras.Input((64,))
    z = keras.layers.Dense(20, activation="relu")(inp)
    probs = keras.layers.Dense(10, activation="softmax", name="probs")(z)
    size = keras.layers.Dense(1, name="size")(z)
    model = keras.Model(inp, [probs, size])
    model.compile("adam", loss=["sparse_categorical_crossentropy", "mse"], loss_weights=[1.0, 0.1])
model.fit(X_train, [y_train, X_train.sum(axis=1) / 64], batch_size=45, epochs=2, verbose=0)

order = np.random.RandomState(3).permutation(len(X_test))
inverse = np.argsort(order)
p, s = model.predict(X_test[order], batch_size=20, verbose=0)
p, s = p[inverse], s[inverse]
straight, s2 = model.predict(X_test, batch_size=32, verbose=0)
print("rows =", len(p), "shape =", p.shape[1])
print("moved by =", round(float(np.abs(p - straight).max() + np.abs(s - s2).max()), 9))
print("sum of squares =", float((p**2).sum()), "sizes =", float(s.sum()))
print("row 17 =", float(p[17, 3]), "last row =", float(p[-1, 0]))

ds = tf.data.Dataset.from_tensor_slices(X_test).batch(17)
from_ds, _ = model.predict(ds, verbose=0)
print("dataset moved by =", round(float(np.abs(from_ds - straight).max()), 9), "rows =", len(from_ds))
few, _ = model.predict(X_test[:1], verbose=0)
print("one row: sum =", float(few.sum()), "first =", float(few[0, 0]), "rows =", len(few))
called, _ = model(X_test[:5], training=False)
print("called =", float(tf.reduce_sum(called * called)))
steps, _ = model.predict(ds.repeat(), steps=3, verbose=0)
print("steps: rows =", len(steps))

labels = straight.argmax(axis=1)
if not tf.io.gfile.exists("submission.csv"):
    with open("submission.csv", "w") as f:
        f.write("id,label\n" + "\n".join(f"{i},{label}" for i, label in enumerate(labels)))
print("label sum =", int(labels.sum()))
