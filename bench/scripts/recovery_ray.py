"""A model under Ray Train; a checkpoint each epoch.

    recovery_ray.py cnn|resnet50 EPOCHS

The seed CNN is made by legacy Keras, 64 samples a worker; ResNet50 is the one of
recovery_torch.py. Every worker writes down each step that it has done, as scripts/recovery.py does.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ray
from ray import train

NAME = sys.argv[1]
if NAME == "cnn":
    from ray.train.tensorflow import TensorflowTrainer as Trainer
else:
    from ray.train.torch import TorchTrainer as Trainer


def keras_loop(config: dict) -> None:
    import cnn
    import numpy as np
    import tensorflow as tf
    import tf_keras as keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = cnn.compiled(keras)
    first = 0
    if kept := train.get_checkpoint():
        with kept.as_directory() as folder, np.load(Path(folder, "state.npz")) as state:
            first = int(state["epoch"])
            model.set_weights([state[f"w{i}"] for i in range(len(model.get_weights()))])
            model.optimizer.iterations.assign(int(state["step"]))
    rank = train.get_context().get_world_rank()

    class Steps(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            path = Path(os.environ["BENCH_STEPS"], f"steps-{rank}-{os.getpid()}.txt")
            self.file = path.open("w", buffering=1)

        def on_train_batch_end(self, batch, logs=None):
            self.file.write(f"{time.time():.4f} {int(self.model.optimizer.iterations.numpy())}\n")

        def on_epoch_end(self, epoch, logs=None):
            weights = {f"w{i}": value for i, value in enumerate(self.model.get_weights())}
            step = int(self.model.optimizer.iterations.numpy())
            state = {"epoch": epoch + 1, "step": step, **weights}
            report(lambda folder: np.savez(folder / "state.npz", **state))

    x, y = cnn.samples()
    batch = cnn.PER_WORKER * strategy.num_replicas_in_sync
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(cnn.SAMPLES).batch(batch)
    model.fit(data, epochs=config["epochs"], initial_epoch=first, verbose=0, callbacks=[Steps()])


def torch_loop(config: dict) -> None:
    import recovery_torch
    import torch

    def keep(state: dict) -> None:
        report(lambda folder: torch.save(state, folder / "state.pt"))

    found = None
    if kept := train.get_checkpoint():
        with kept.as_directory() as folder:
            found = torch.load(Path(folder, "state.pt"))
    recovery_torch.train(config["name"], config["epochs"], recovery_torch.STEPS, keep, found)


def report(write: Callable[[Path], None]) -> None:
    """Called by all workers; what the first one writes into the folder is the checkpoint."""
    if train.get_context().get_world_rank():
        train.report({})
        return
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        train.report({}, checkpoint=train.Checkpoint.from_directory(folder))


folder = os.environ["BENCH_STEPS"]
ray.init(
    num_cpus=2,
    include_dashboard=False,
    object_store_memory=200_000_000,
    _temp_dir=f"{folder}/ray",
    log_to_driver=True,
)
Trainer(
    keras_loop if NAME == "cnn" else torch_loop,
    train_loop_config={"name": NAME, "epochs": int(sys.argv[2])},
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(
        storage_path=os.environ["BENCH_BACKUP"],
        failure_config=train.FailureConfig(max_failures=-1),
        checkpoint_config=train.CheckpointConfig(num_to_keep=2),
    ),
).fit()
