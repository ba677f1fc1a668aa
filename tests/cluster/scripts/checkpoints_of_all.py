"""TensorFlow's own checkpoints, saved by all workers to one place, by each to its own, by one."""

import contextlib
import io
import logging

import keras
import numpy as np
import tensorflow as tf
from callbacks_common import FOLDER, RANK, barrier, finish, listing, model_of, strategy, train

import tfrun
from tfrun.train import chief_journal

world = tfrun.world()
model = model_of(optimizer="sgd")
found = {}


def names(paths):
    return [str(path).removeprefix(f"{FOLDER}/") for path in paths]


def fresh_restored(path):
    """The kernel of another model that has read the checkpoint, less the one that was saved."""
    other = model_of(optimizer="sgd")
    other.layers[0].kernel.assign(tf.zeros_like(other.layers[0].kernel))
    tf.train.Checkpoint(model=other).restore(path).expect_partial()
    return float(np.abs(other.get_weights()[0] - model.get_weights()[0]).max())


# What a script for one process does: all workers save, manage, and look at what is there.
step = tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(model=model, step=step)
manager = tf.train.CheckpointManager(checkpoint, FOLDER / "managed", max_to_keep=2)
saved = []
for _ in range(4):
    step.assign_add(1)
    saved.append(manager.save())
    assert manager.latest_checkpoint == saved[-1]
found["managed"] = {
    "saved": names(saved),
    "latest": names([manager.latest_checkpoint]),
    "kept": names(manager.checkpoints),
    "counter": int(checkpoint.save_counter.numpy()),
    "off": fresh_restored(manager.latest_checkpoint),
    "again": names(
        tf.train.CheckpointManager(checkpoint, FOLDER / "managed", max_to_keep=2).checkpoints
    ),
}
every = tf.train.CheckpointManager(
    tf.train.Checkpoint(step=step),
    str(FOLDER / "every"),
    max_to_keep=None,
    step_counter=step,
    checkpoint_interval=2,
    checkpoint_name="at",
)
steps = []
for _ in range(4):
    step.assign_add(1)
    steps.append(every.save(checkpoint_number=step))
steps.append(every.save(check_interval=False))
found["every"] = [names(filter(None, steps)), names(every.checkpoints), len(steps)]

# Saved and written by name, and in the scope.
with strategy.scope():
    plain = tf.train.Checkpoint(step=step, model=model)
    found["plain"] = names(
        [
            plain.save(file_prefix=str(FOLDER / "plain" / "c")),
            plain.save(str(FOLDER / "plain" / "c")),
            plain.write(FOLDER / "plain" / "written"),
        ]
    )
plain.read(save_path=str(FOLDER / "plain" / "written")).assert_existing_objects_matched()
options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
later = tf.train.Checkpoint(step=step)
found["later"] = names([later.save(str(FOLDER / "later" / "c"), options)])
later.sync()
assert tf.train.load_variable(
    str(FOLDER / "later" / "c-1"), "save_counter/.ATTRIBUTES/VARIABLE_VALUE"
)
found["state"] = tf.train.latest_checkpoint(FOLDER / "plain").removeprefix(str(FOLDER))


class Module(tf.Module):
    def __init__(self):
        self.step = step

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64)])
    def __call__(self, x):
        return x + self.step


tf.saved_model.save(Module(), export_dir=str(FOLDER / "module"))
loaded = tf.saved_model.load(export_dir=str(FOLDER / "module"))
found["module"] = int(loaded(tf.constant(1, tf.int64)))
archive = keras.export.ExportArchive()
archive.track(model)
archive.add_endpoint("serve", model.call, [tf.TensorSpec([None, 4], tf.float32)])
archive.write_out(str(FOLDER / "archive"), verbose=False)
exported = tf.saved_model.load(str(FOLDER / "archive"))
found["archive"] = exported.serve(tf.zeros([2, 4])).shape[0]

# TensorFlow's tutorial: the others save aside, and take it away.
own = FOLDER / "tutorial"
if not world.is_chief:
    own = own / f"workertemp_{RANK}"
    tf.io.gfile.makedirs(str(own))
aside = tf.train.Checkpoint(model=model, step=step)
tutorial = tf.train.CheckpointManager(aside, directory=own, max_to_keep=1)
for _ in range(2):
    tutorial.save()
    if not world.is_chief:
        tf.io.gfile.rmtree(str(own))
    latest = tf.train.latest_checkpoint(FOLDER / "tutorial")
    found["tutorial"] = [names([latest]), fresh_restored(latest)]
    barrier()  # the chief's next one takes this one away
by_branch = tf.train.Checkpoint(step=step)
for _ in range(2):
    if world.is_chief:
        path = by_branch.write(str(FOLDER / "branch" / "chief"))
    else:
        path = by_branch.write(str(FOLDER / "branch" / f"worker-{RANK}"))
found["branch"] = tf.train.load_variable(path, "step/.ATTRIBUTES/VARIABLE_VALUE").item()

# The chief alone, which waits for nobody; then all again, and a failure that the script survives.
alone = tf.train.Checkpoint(step=step)
if world.is_chief:
    alone.save(str(FOLDER / "alone" / "c"))
    tf.saved_model.save(Module(), str(FOLDER / "alone" / "module"))
found["alone"] = names([alone.save(str(FOLDER / "alone" / "c"))])
(FOLDER / "file").write_text("no folder")
try:
    alone.write(str(FOLDER / "file" / "c"))
except tf.errors.OpError as error:
    found["failed"] = type(error).__name__

# Within `fit`: on all workers, and on the chief alone.
own_manager = tf.train.CheckpointManager(plain, FOLDER / "fit", max_to_keep=1)
chief_manager = tf.train.CheckpointManager(
    tf.train.Checkpoint(model=model), FOLDER / "fit-chief", max_to_keep=1
)


class Chief(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        chief_manager.save()
        tf.saved_model.save(Module(), str(FOLDER / "fit-chief" / "module"))


on_all = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: own_manager.save())
trained = {}
train(trained, "fit", on_all, tfrun.ChiefOnly(Chief()), model=model, epochs=2)
found["fit"] = [trained["fit"]["weights"], names(own_manager.checkpoints)]

# Summed over the workers when it is read.
with strategy.scope():
    total = tf.Variable(
        0.0,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
counting = tf.train.Checkpoint(total=total)
strategy.run(tf.function(lambda: total.assign_add(1.0 + RANK)))
path = counting.save(str(FOLDER / "total" / "c"))
found["total"] = tf.train.load_variable(path, "total/.ATTRIBUTES/VARIABLE_VALUE").item()
total.assign(0.0)
counting.restore(path)
found["restored"] = float(total.numpy())

# Who saves alone says so, and does not wait twice.
logged = io.StringIO()
logging.getLogger("tfrun").addHandler(logging.StreamHandler(logged))
barrier()
chief_journal.START_SECONDS = 0.3
for _ in range(2):
    if not world.is_chief:
        path = alone.write(str(FOLDER / f"only-{RANK}" / "c"))
found["refused"] = None
if world.is_chief and world.size > 1:
    try:
        counting.write(str(FOLDER / "total" / "alone"))
    except tfrun.TfrunError as error:
        found["refused"] = error.code
with contextlib.suppress(tf.errors.NotFoundError):
    chief_journal.START_SECONDS = 60.0
barrier()
finish(
    found=found,
    files=[name for name in listing(".") if name.endswith(".index") and "variables" not in name],
    temporary=[name for name in listing(".") if "temp" in name],
    said=logged.getvalue().count("itself"),
)
