# after: a Kaggle kernel: a strategy for whatever hardware there is, all of it in one scope
# expects: equal
# not compared: REPLICAS
import gc
import math
import os
import random
import warnings

import numpy as np
import tensorflow as tf
import tensorflow.keras.backend as K
from sklearn.datasets import load_wine
from sklearn.metrics import f1_score

warnings.filterwarnings("ignore")


def seed_everything(seed=0):
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)
    tf.keras.utils.set_random_seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)


for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
try:
    if "COLAB_TPU_ADDR" not in os.environ:
        raise ValueError("no TPU")
    tpu = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.config.experimental_connect_to_cluster(tpu)
    strategy = tf.distribute.TPUStrategy(tpu)
except ValueError:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("REPLICAS: ", strategy.num_replicas_in_sync)


class CFG:
    seed = 2021
    batch_size = 32
    epochs = 4
    lr_start, lr_max, lr_min = 0.001, 0.02, 0.0005
    rampup = 1
    decay = 0.6


seed_everything(CFG.seed)


def lrfn(epoch):
    if epoch < CFG.rampup:
        return (CFG.lr_max - CFG.lr_start) / CFG.rampup * epoch + CFG.lr_start
    return (CFG.lr_max - CFG.lr_min) * CFG.decay ** (epoch - CFG.rampup) + CFG.lr_min


X, y = load_wine(return_X_y=True)
X = (X - X.mean(0)) / X.std(0)
shuffle = np.random.permutation(len(X))
X, y = X[shuffle], y[shuffle]


def get_dataset(idx, training):
    ds = tf.data.Dataset.from_tensor_slices((X[idx], y[idx]))
    if training:
        ds = ds.repeat()
        ds = ds.shuffle(256, seed=CFG.seed)
    ds = ds.batch(CFG.batch_size)
    return ds.prefetch(tf.data.AUTOTUNE)


with strategy.scope():
    inp = tf.keras.layers.Input(shape=(13,), name="inp")
    z = tf.keras.layers.Dense(16, activation="swish")(inp)
    out = tf.keras.layers.Dense(3, activation="softmax")(z)
    model = tf.keras.Model(inputs=inp, outputs=out)
    model.compile(optimizer=tf.keras.optimizers.Adam(), loss="sparse_categorical_crossentropy",
                  metrics=[tf.keras.metrics.SparseCategoricalAccuracy()], steps_per_execution=2)
    sv = tf.keras.callbacks.ModelCheckpoint(
        "fold-0.weights.h5", monitor="val_loss", verbose=0, save_best_only=True, save_weights_only=True)
    history = model.fit(
        get_dataset(np.arange(0, 130), True), epochs=CFG.epochs,
        steps_per_epoch=math.ceil(130 / CFG.batch_size),
        callbacks=[sv, tf.keras.callbacks.LearningRateScheduler(lrfn)],
        validation_data=get_dataset(np.arange(130, 178), False), verbose=0)
    model.load_weights("fold-0.weights.h5")
    pred = model.predict(get_dataset(np.arange(130, 178), False), verbose=0)
print("best val_loss =", min(history.history["val_loss"]))
print("last lr =", float(history.history["learning_rate"][-1]))
print("CV F1 =", f1_score(y[130:], pred.argmax(1), average="macro"))
print("oof =", float((pred**2).sum()))
K.clear_session()
gc.collect()
