"""Trains, and each worker for itself writes a checkpoint in the background; training goes on.

That no worker waits for another one is a test too: a collective within would never end.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import checkpoint_models as models
import tensorflow as tf

import tfrun
from tfrun.checkpoint.atomic_store import Store
from tfrun.checkpoint.background_writer import BackgroundWriter
from tfrun.checkpoint.tf_format import CheckpointLayout

strategy = tf.distribute.MultiWorkerMirroredStrategy()
here = tfrun.world()
found: dict[str, dict] = {}
for name in models.chosen():
    directory = Path(os.environ["TEST_CHECKPOINTS"], name, str(here.rank))
    said: list[str] = []
    store = Store(directory, keep=2)
    writer = BackgroundWriter(store, said.append)
    with strategy.scope():
        model = models.compiled(name)
    models.train(model)
    variables = models.named(model)
    layout = CheckpointLayout.of(model, model.optimizer, names=variables)
    arrays = {name: models.local(v) for name, v in variables.items()}
    values = models.listed(arrays)
    # The ranks take turns, and nobody else trains meanwhile: an all-reduce would hang here.
    for rank in range(here.size):
        if rank == here.rank:
            writer.submit(3, {"key": [0, 1, 0]}, arrays, layout)
            assert writer.flush(60), said
        models.train(model)
    assert not said, said
    again = Store(directory, read_only=True).newest()
    assert again is not None
    found[name] = {
        "values": values,
        "read": models.listed(again.arrays),
        "dtypes_kept": all(a.dtype == again.arrays[n].dtype for n, a in arrays.items()),
        "in_tensorflow": sorted(layout.variables),
        "trained_on": values != models.listed({n: models.local(v) for n, v in variables.items()}),
    }
    writer.close()
    store.close()
Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(found))
