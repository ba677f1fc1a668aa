"""Saving and loading outside callbacks: by all workers, by the chief alone."""

import io
from contextlib import redirect_stdout

import keras
import numpy as np
import tensorflow as tf
from callbacks_common import FOLDER, RANK, barrier, dataset, finish, listing, model_of, strategy, x

import tfrun

model = model_of()
model.fit(dataset(), epochs=1, verbose=0)
want = model.predict(x, verbose=0)
same = {}
said = io.StringIO()


def close(other):
    return bool(np.allclose(other.predict(x, verbose=0), want, atol=1e-6))


all_ = FOLDER / "all"
all_.mkdir(exist_ok=True)
for _ in range(2):  # onto itself, too
    model.save(all_ / "model.keras")
    same["model"] = close(keras.models.load_model(all_ / "model.keras"))
    model.save_weights(all_ / "model.weights.h5")
    fresh = model_of()
    fresh.load_weights(all_ / "model.weights.h5")
    same["weights"] = close(fresh)
keras.models.save_model(model, all_ / "function.keras")
with strategy.scope():
    distributed = keras.models.load_model(all_ / "function.keras")
same["function"] = close(distributed)
distributed.fit(dataset(), epochs=1, verbose=0)
same["trains_on"] = int(distributed.optimizer.iterations.numpy())
model.save(all_ / "legacy.h5")
model.save_weights(all_ / "shards.weights.json", max_shard_size=1e-7)
with redirect_stdout(said):
    model.export(all_ / "exported")
barrier()
exported = tf.saved_model.load(str(all_ / "exported"))
same["exported"] = bool(np.allclose(exported.serve(x), want, atol=1e-6))
same["legacy"] = close(keras.models.load_model(all_ / "legacy.h5", compile=False))

# The most common pattern in scripts.
if tfrun.world().is_chief:
    chief = FOLDER / "chief"
    chief.mkdir()
    model.save(chief / "model.keras")
    model.save_weights(chief / "model.weights.h5")
    model.export(chief / "exported", verbose=False)
barrier()
same["chief"] = close(keras.models.load_model(FOLDER / "chief" / "model.keras"))

# A model made from the same layers outside the scope shares the variables.
part = keras.Model(model.inputs, model.layers[0].output)
part.save(FOLDER / "part.keras")
shape = list(part.predict(x, verbose=0).shape)

# A path that differs by worker: who loads it gets what the chief has written to its own.
model.save(FOLDER / f"of-{RANK}.keras")
try:
    keras.models.load_model(FOLDER / f"of-{RANK}.keras")
    code = None
except tfrun.TfrunError as error:
    code = error.code
history = model.fit(dataset(), epochs=1, verbose=0).history
finish(
    same=same,
    all=[name for name in listing("all") if not name.startswith("exported/")],
    chief=[name for name in listing("chief") if not name.startswith("exported/")],
    listing=listing("."),
    said=said.getvalue().replace(str(FOLDER), "FOLDER"),
    part=shape,
    history=history,
    code=code,
)
