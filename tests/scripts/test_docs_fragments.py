"""The pieces of Python in the documentation run, with what they leave out put around them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Jobs
from docs_blocks import PAGES, blocks

SECONDS = 150
# What the pages take as known.
KNOWN = """
import keras, numpy as np, tensorflow as tf
import tfrun

keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(512, 8)).astype("float32")
y = x.sum(axis=1, keepdims=True)
x_val, y_val = x[:64], y[:64]
def build_model():
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
"""
STRATEGY = """
strategy = tfrun.strategy()
with strategy.scope():
    model = build_model()
    optimizer = keras.optimizers.SGD(0.01)
"""
COMPILED = STRATEGY + 'model.compile(optimizer, "mse")\n'
LOOP = """
def train_step(batch):
    def on_replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / 64
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables),
                                      model.trainable_variables))
    strategy.run(on_replica, args=batch)
train_step = tf.function(train_step)
train = data = dataset = tfrun.Dataset.from_arrays((x, y), batch_size=64)
"""
STATE = "state = tfrun.TrainState(model=model, optimizer=optimizer)\n"
TRAIN = """
import tfrun
def train(epochs):
    import keras, numpy as np
    x = np.random.default_rng(0).normal(size=(256, 8)).astype("float32")
    with tfrun.strategy().scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.05), "mse")
    return model.fit(x, x.sum(1), batch_size=64, epochs=epochs, verbose=0).history["loss"]
"""


@dataclass(frozen=True, kw_only=True)
class Around:
    """What stands around a piece.

    Attributes:
      job: the options of the job that runs it; None is no job. Pieces with the same ones share it.
      before, after: what comes first, and what comes last.
      alone: whether it needs a job of its own: a job has one strategy of parameter servers.
    """

    job: str | None = "-n 2"
    before: str = ""
    after: str = ""
    alone: bool = False


SERVERS = "-n 2 --ps 2"
# By the first line of the piece.
AROUND = {
    "import tfrun": Around(after="assert tfrun.world().size == 2"),
    "losses = tfrun.launch(train, args=(3,), workers=4)": Around(
        job=None, before=TRAIN, after="assert len(losses) == 3 and losses[-1] < losses[0]"
    ),
    "state = tfrun.TrainState(model=model, optimizer=optimizer)": Around(
        before=KNOWN + STRATEGY + LOOP, after="assert state.step == 24; state.close()"
    ),
    "model.fit(x, y, callbacks=[tfrun.ChiefOnly(UploadToMyServer())])": Around(
        before=KNOWN + COMPILED + "seen = []\n"
        "class UploadToMyServer(keras.callbacks.Callback):\n"
        "    def on_epoch_end(self, epoch, logs=None):\n"
        "        seen.append(epoch)\n",
        after="assert bool(seen) is tfrun.world().is_chief",
    ),
    "checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)": Around(
        job=None,
        before=KNOWN
        + "import subprocess\n"
        + "text = '''"
        + KNOWN
        + COMPILED
        + "model.fit(x, y, batch_size=64, verbose=0)\n'''\n"
        + "open('kept.py', 'w').write(text)\n"
        + "words = ['tfrun', '-n', '2', '--checkpoint-every', '4', '--checkpoint-dir']\n"
        + "subprocess.run([*words, 'checkpoints', 'kept.py'], check=True)\n"
        + "model = build_model()\n"
        + "optimizer = keras.optimizers.SGD(0.01)\n"
        + "optimizer.build(model.trainable_variables)\n",
        after="assert int(optimizer.iterations) == 8",
    ),
    "for epoch in range(state.epoch, 3):": Around(
        before=KNOWN + STRATEGY + LOOP + STATE + "validate = lambda: None\n",
        after="assert state.step == 24; state.close()",
    ),
    "for x, y in state.steps(dataset, epochs=3):": Around(
        job="-n 2 --replicas 4",
        before=KNOWN
        + STRATEGY
        + "with strategy.scope():\n    mean = keras.metrics.Mean()\n"
        + "augment = tf.function(lambda x: x * 1.0)\n"
        + "@tf.function\n"
        + "def train_step(x, y):\n"
        + "    def on_replica(x, y):\n"
        + "        with tf.GradientTape() as tape:\n"
        + "            loss = tf.reduce_sum((model(x) - y) ** 2) / 64\n"
        + "        weights = model.trainable_variables\n"
        + "        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))\n"
        + "        return loss\n"
        + "    return strategy.run(on_replica, args=(x, y))\n"
        + "dataset = tfrun.Dataset.from_arrays((x, y), batch_size=64)\n"
        + STATE,
        after="assert state.step == 24 and float(mean.result()) > 0; state.close()",
        alone=True,
    ),
    "while state.step < 1000:": Around(
        before=KNOWN
        + STRATEGY
        + LOOP
        + STATE
        + "def batch_at(step):\n"
        + "    rows = train.sample_ids(0, step % 8, tfrun.world().rank, tfrun.world().size)\n"
        + "    return tf.constant(x[rows]), tf.constant(y[rows])\n",
        after="assert state.step == 1000; state.close()",
    ),
    "train = tfrun.Dataset.from_arrays((x, y), batch_size=256, shuffle=True, seed=1)": Around(
        before=KNOWN
        + COMPILED
        + "augment = lambda x, y: (x * 1.0, y)\n"
        + "valid = tfrun.Dataset.from_arrays((x_val, y_val), batch_size=64)\n",
    ),
    "def augment(image, label, seed):": Around(
        before=KNOWN,
        after="images = np.zeros((8, 4, 4, 3), 'float32')\n"
        "data = tfrun.Dataset.from_arrays((images, np.arange(8)), batch_size=8).map(augment)\n"
        "assert next(iter(data))[0].shape == (4, 4, 4, 3)",
    ),
    "for batch in strategy.experimental_distribute_dataset(train):": Around(
        before=KNOWN + STRATEGY + LOOP + "step = lambda *rows: None\n",
    ),
    "optimizer = keras.optimizers.SGD(tfrun.scaled_lr(0.1, base_batch=64, warmup_steps=500))": (
        Around(before=KNOWN + STRATEGY)
    ),
    "@tf.function": Around(before=KNOWN + STRATEGY + LOOP + "global_batch_size = 64\n"),
    "def test_training_converges():": Around(
        job=None, before=TRAIN, after="test_training_converges()"
    ),
    "strategy = tfrun.strategy()  # or tf.distribute.ParameterServerStrategy(resolver)": Around(
        job=SERVERS, before=KNOWN, alone=True
    ),
    "partitioners = tf.distribute.experimental.partitioners": Around(
        job=SERVERS,
        before=KNOWN,
        after="with strategy.scope():\n"
        "    table = tf.Variable(tf.zeros((200_000, 8)))\n"
        "assert len(table.variables) > 1",
        alone=True,
    ),
    "strategy = tfrun.strategy(max_staleness=4)": Around(
        job=SERVERS,
        before=KNOWN,
        after="with strategy.scope():\n"
        "    model = build_model()\n"
        '    model.compile("sgd", "mse")\n'
        "model.fit(x, y, batch_size=64, verbose=0)",
        alone=True,
    ),
}
PIECES = {
    block.text.partition("\n")[0]: block.text
    for page in PAGES
    for block in blocks(page)
    if (block.language, block.mark) == ("python", "")
}
TOGETHER = [first for first, around in AROUND.items() if around.job and not around.alone]
SINGLE = [first for first in AROUND if first not in TOGETHER]


def written(first: str, directory: Path, name: str) -> Path:
    around = AROUND[first]
    last = '\nif __name__ == "__main__":\n    print("it has ended", flush=True)\n'
    path = directory / name
    path.write_text(f"{around.before}\n{PIECES[first]}\n{around.after}\n{last}")
    return path


def test_each_piece_has_what_stands_around_it() -> None:
    count = sum(
        (block.language, block.mark) == ("python", "") for page in PAGES for block in blocks(page)
    )
    assert len(PIECES) == count, "two pieces begin with the same line"
    assert set(PIECES) == set(AROUND)


@pytest.mark.timeout(2 * SECONDS)
def test_pieces_in_a_job(jobs: Jobs) -> None:
    names = [f"piece_{number}.py" for number, _ in enumerate(TOGETHER)]
    for first, name in zip(TOGETHER, names, strict=True):
        written(first, jobs.directory, name)
    jobs.script(
        "import runpy\n"
        f"for name in {names}:\n"
        "    print(name, flush=True)\n"
        "    runpy.run_path(name)\n"
        "print('all have ended', flush=True)\n"
    )
    done = jobs.run("-n", 2, "train.py", timeout=SECONDS)
    assert done.returncode == 0, (TOGETHER, done.stdout[-2000:], done.stderr)
    assert "all have ended" in done.stdout


@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("first", SINGLE)
def test_a_piece_alone(first: str, jobs: Jobs) -> None:
    script, options = written(first, jobs.directory, "piece.py"), AROUND[first].job
    if options:
        done = jobs.run(*options.split(), script, timeout=SECONDS)
    else:
        bin_directory = str(Path(sys.executable).parent)
        done = subprocess.run(
            [sys.executable, script],
            cwd=jobs.directory,
            env={**jobs.environment, "PATH": f"{bin_directory}:{jobs.environment['PATH']}"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    assert done.returncode == 0 and "it has ended" in done.stdout, (done.stdout, done.stderr)
