"""Plain TensorFlow, without tfrun, reads the checkpoints in the directories that it is given."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import checkpoint_models as models
import keras
import tensorflow as tf


def objects(name: str, built: bool) -> tuple[keras.Model, tf.train.Checkpoint]:
    model = models.compiled(name)
    if built:
        model.optimizer.build(model.trainable_variables)
    return model, tf.train.Checkpoint(model=model, optimizer=model.optimizer)


def values(model: keras.Model) -> dict[str, list]:
    return models.listed({n: models.local(v) for n, v in models.named(model).items()})


def tensors(prefix: str) -> dict[str, list]:
    reader = tf.train.load_checkpoint(prefix)
    keys = [k for k in reader.get_variable_to_shape_map() if k.endswith("VARIABLE_VALUE")]
    return models.listed({k: reader.get_tensor(k) for k in keys if "save_counter" not in k})


def continued(name: str, prefix: str) -> dict[str, list]:
    """Restored before the optimizer has its slots, as most scripts do it, and trained."""
    model, checkpoint = objects(name, built=False)
    checkpoint.restore(prefix).expect_partial()
    models.train(model)
    return values(model)


def alone(name: str, prefix: str) -> dict[str, list]:
    """The model without its optimizer, as for inference."""
    model, _ = objects(name, built=False)
    status = tf.train.Checkpoint(model=model).restore(prefix)
    status.assert_existing_objects_matched()
    status.expect_partial()
    return models.listed({f"model/{i}": v.numpy() for i, v in enumerate(model.variables)})


out, rank = Path(sys.argv[1]), sys.argv[3]
found: dict[str, dict] = {}
for name in models.chosen():
    path = tf.train.latest_checkpoint(str(Path(sys.argv[2], name, rank)))
    assert path is not None, name

    model, checkpoint = objects(name, built=True)
    status = checkpoint.restore(path)
    status.assert_existing_objects_matched()
    status.assert_consumed()
    restored, counter = values(model), int(checkpoint.save_counter.numpy())
    own = checkpoint.save(str(out.with_name(f"own-{name}-{rank}")))

    found[name] = {
        "restored": restored,
        "alone": [alone(name, path), alone(name, own)],
        "counter": counter,
        "tensors": [tensors(path), tensors(own)],
        "continued": [continued(name, path), continued(name, own)],
    }
assert not [module for module in sys.modules if module.startswith("tfrun")]
out.write_text(json.dumps(found))
