"""The chief alone saves, and all load that at once; the chief is slow.

It writes when the others wait for it: they would find nothing, or what is of an earlier save.
"""

import threading
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from callbacks_common import FOLDER, RANK, barrier, dataset, finish, model_of, strategy

import tfrun
from tfrun.train import chief_journal

is_chief = tfrun.world().is_chief
slow = threading.Event()
load = 0
original = chief_journal.reader.has_passed


def has_passed(*args):
    (FOLDER / f"waits-{load}-{RANK}").touch()
    return original(*args)


def until_all_wait():
    deadline = 300
    while len(list(FOLDER.glob(f"waits-{load}-*"))) < tfrun.world().size - 1 and deadline:
        deadline -= not slow.wait(0.1)
    assert deadline, "nobody waits for the chief"


chief_journal.reader.has_passed = has_passed
model = model_of()
found = {}

model.fit(dataset(), epochs=1, verbose=0)
if is_chief:
    until_all_wait()
    model.save(FOLDER / "m.keras")
with strategy.scope():
    other = keras.models.load_model(FOLDER / "m.keras")
barrier()
found["saved"] = bool(np.allclose(other.get_weights()[0], model.get_weights()[0]))

load = 1
model.fit(dataset(), epochs=1, verbose=0)
if is_chief:
    until_all_wait()
    model.save_weights(FOLDER / "m.weights.h5")
    model.save(FOLDER / "m.keras")
with strategy.scope():
    other = keras.models.load_model(FOLDER / "m.keras")
barrier()
found["again"] = bool(np.allclose(other.get_weights()[0], model.get_weights()[0]))
other.load_weights(FOLDER / "m.weights.h5")
barrier()

load = 2
checkpoint = tf.train.Checkpoint(model=model)
if is_chief:
    until_all_wait()
    checkpoint.write(str(FOLDER / "ck"))
checkpoint.read(str(FOLDER / "ck")).expect_partial()
barrier()

load = 3
module = tf.Module()
module.value = tf.Variable(3.0)
if is_chief:
    until_all_wait()
    tf.saved_model.save(module, str(FOLDER / "saved"))
else:
    found["else"] = None
found["module"] = float(tf.saved_model.load(str(FOLDER / "saved")).value)
barrier()

# Who only tries is not kept; nor is who loads alone, for the chief waits elsewhere.
load = 4
try:
    model.load_weights(FOLDER / "none.weights.h5")
except FileNotFoundError:
    found["none"] = "not found"
if not is_chief:
    try:
        keras.models.load_model(FOLDER / "none.keras")
    except ValueError:
        found["else"] = Path(FOLDER / "none.keras").exists()
strategy.reduce("SUM", tf.constant(1.0), axis=None)
finish(**found)
