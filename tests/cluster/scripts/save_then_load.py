"""TensorFlow's tutorial: worker 1 saves to a folder of its own, then all load what the chief saved.

The chief is slow: its file is not there before every other worker is about to load it.
"""

import json
import threading
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from callbacks_common import FOLDER, RANK, barrier, dataset, finish, listing, model_of, strategy, x
from tensorflow.keras.models import load_model as legacy_load_model

import tfrun
from tfrun.train import chief_journal, saving

model = model_of()
model.fit(dataset(), epochs=1, verbose=0)
want = model.predict(x, verbose=0)
is_chief = tfrun.world().is_chief
slow = threading.Event()
loads = 0
original_find = chief_journal.reader.find
original_write = saving._write


def find(wanted, seconds):
    """The worker is about to wait: now the chief may go on."""
    (FOLDER / f"waits-{loads}-{RANK}").touch()
    return original_find(wanted, seconds)


def write(*args):
    """The chief writes when all the others wait for it."""
    deadline = 100
    while len(list(FOLDER.glob(f"waits-{loads}-*"))) < tfrun.world().size - 1 and deadline:
        deadline -= not slow.wait(0.1)
    assert deadline, "nobody waits for the chief"
    return original_write(*args)


chief_journal.reader.find = find
saving._write = write


def path_of(name):
    if is_chief:
        return str(FOLDER / name)
    tf.io.gfile.makedirs(str(FOLDER / f"workertemp_{RANK}"))
    return str(FOLDER / f"workertemp_{RANK}" / name)


def forget(path):
    if not is_chief:
        tf.io.gfile.rmtree(str(Path(path).parent))


def loaded_with(load):
    """All load what the chief has saved; returns whether it is right, and its training goes on."""
    global loads
    with strategy.scope():
        other = load()
    loads += 1
    barrier()
    return bool(np.allclose(other.predict(x, verbose=0), want, atol=1e-6))


def weights():
    other.load_weights(str(FOLDER / "m.weights.h5"))
    return other


same = {}
path = path_of("m.keras")
model.save(path)
forget(path)
same["keras"] = loaded_with(lambda: keras.models.load_model(str(FOLDER / "m.keras")))
path = path_of("t.keras")
keras.saving.save_model(model, path)
forget(path)
same["tf.keras"] = loaded_with(lambda: legacy_load_model(filepath=str(FOLDER / "t.keras")))
path = path_of("m.weights.h5")
other = model_of()  # all make its variables together
if is_chief:
    model.save_weights(path)
else:
    model.save_weights(path)
forget(path)
same["weights"] = loaded_with(weights)
path = path_of("exported")
model.export(path, verbose=False)
forget(path)
exported = tf.saved_model.load(str(FOLDER / "exported"))
same["exported"] = bool(np.allclose(exported.serve(x), want, atol=1e-6))
loads += 1
barrier()
# The same path again, by the other name of the function.
tf.keras.models.save_model(model, str(FOLDER / "again.keras"))
same["again"] = loaded_with(lambda: tf.keras.models.load_model(str(FOLDER / "again.keras")))

# The chief cannot write: who wants to load that is told so; who loads something else is not.
saving._write = original_write
chief_journal.reader.find = original_find
failed = None
for _ in range(2):
    try:
        model.save(str(FOLDER / "nowhere" / "m.keras"))
        keras.models.load_model(str(FOLDER / "nowhere" / "m.keras"))
    except OSError as error:
        failed = type(error).__name__
try:
    model.save(str(FOLDER / "nowhere" / f"{RANK}.keras"))
except OSError:
    assert is_chief
keras.models.load_model(str(FOLDER / "m.keras"))

# Weights that the chief alone has loaded.
barrier()
model.save_weights(str(FOLDER / "m.weights.h5"))
model.load_weights(str(FOLDER / "m.weights.h5"))
history = model.fit(dataset(), epochs=1, verbose=0).history
code = None
try:
    if is_chief:
        model.load_weights(str(FOLDER / "m.weights.h5"))
    model.fit(dataset(), epochs=1, verbose=0)
except tfrun.TfrunError as error:
    code = error.code
finish(
    same=same,
    failed=failed,
    files=[name for name in listing(".") if name.endswith((".keras", ".h5"))],
    history=json.loads(json.dumps(history)),
    code=code,
)
