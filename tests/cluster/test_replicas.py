"""--replicas: four pieces of each batch give the same bits on any number of workers.

The same number of threads, too: within one piece TensorFlow adds up in another order with another
number of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "of_replicas.py"
MODELS = ("cnn", "transformer", "gan", "recommender", "generator", "sequence")
FEATURES = ("logs", "own", "exact", "scaled", "two")
OPTIONS = ("--replicas", 4, "--threads-per-worker", 1)
SECONDS = 300


def bits(jobs, *options: object, models=MODELS, **env: str) -> list[str]:
    job = jobs.run(*options, *OPTIONS, SCRIPT, *models, env=env, timeout=SECONDS)
    assert job.returncode == 0, job.stderr[-3000:]
    found = [line.partition("BITS ")[2] for line in job.stdout.splitlines() if "BITS " in line]
    assert [line.split()[0] for line in found] == list(models)
    return found


@pytest.mark.timeout(4 * SECONDS)
def test_one_to_four_workers_compute_the_same_bits(jobs):
    alone = bits(jobs, "-n", 1)
    for workers in (2, 3, 4):
        assert bits(jobs, "-n", workers) == alone, f"{workers} workers"
    assert bits(jobs, "-n", 3, TFRUN_SHARED_MEMORY="0") == alone, "over TCP"


@pytest.mark.timeout(5 * SECONDS)
def test_what_fit_takes_besides_has_the_same_bits(jobs):
    """Logs of batches and of own steps, loss scaling, clipping, accumulation, averages, weights."""
    alone = bits(jobs, "-n", 1, models=FEATURES)
    for workers in (2, 3):
        assert bits(jobs, "-n", workers, models=FEATURES) == alone, f"{workers} workers"
    options = ("--threads-per-worker", 1)
    job = jobs.run("-n", 4, *options, SCRIPT, "logs", timeout=SECONDS)
    assert [line.partition("BITS ")[2] for line in job.stdout.splitlines() if "BITS" in line] == (
        alone[:1]
    ), "one replica on each worker, without --replicas"


@pytest.mark.timeout(3 * SECONDS)
def test_a_death_changes_no_bit(jobs):
    model = ("cnn",)
    undisturbed = bits(jobs, "-n", 2, models=model)
    died = bits(jobs, "-n", 2, "--max-restarts", 1, models=model, DIES_AT="6")
    assert died == undisturbed


def test_who_states_no_threads_is_told_what_the_bits_depend_on(jobs):
    script = jobs.script("print('hello')\n")
    told = [jobs.run("-n", 1, *options, script).stderr for options in (OPTIONS[:2], OPTIONS)]
    assert ["set --threads-per-worker" in text for text in told] == [True, False], told


REFUSED = {
    "a worker's own batch": ("", "model.compile('sgd', 'mse')\nmodel.train_on_batch(x, x)"),
    "eagerly": ("model.compile('sgd', 'mse', run_eagerly=True)", "model.fit(x, x, verbose=0)"),
    "its own loop": (
        "@tf.function\ndef step():\n    return strategy.run(lambda: tf.ones([]))",
        "step()",
    ),
    "an op's own seed": (
        "class Noise(keras.layers.Layer):\n"
        "    def call(self, x):\n"
        "        return x + tf.random.normal(tf.shape(x))\n"
        "with strategy.scope():\n"
        "    model = keras.Sequential([keras.Input((2,)), Noise(), keras.layers.Dense(2)])\n"
        "    model.compile('sgd', 'mse')",
        "model.fit(x, x, verbose=0)",
    ),
}


def test_no_strategy_of_the_script_is_left_without_its_replicas(jobs):
    alone = jobs.run("-n", 1, *OPTIONS, jobs.script("import tfrun\ntfrun.strategy('one_device')\n"))
    assert alone.returncode != 0 and "TFRUN-503" in alone.stderr
    ring = (
        "import tensorflow as tf\n"
        "options = tf.distribute.experimental.CommunicationOptions(\n"
        "    implementation=tf.distribute.experimental.CommunicationImplementation.RING)\n"
        "tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)\n"
    )
    other = jobs.run("-n", 2, *OPTIONS, jobs.script(ring))
    assert other.returncode != 0 and "TFRUN-107" in other.stderr


@pytest.mark.parametrize("lines", REFUSED.values(), ids=REFUSED)
def test_what_takes_one_replica_is_refused(jobs, lines):
    script = jobs.script(
        "import keras, numpy as np, tensorflow as tf, tfrun\n"
        "keras.utils.set_random_seed(1)\n"
        "x, strategy = np.ones((8, 2), 'float32'), tfrun.strategy()\n"
        "with strategy.scope():\n"
        "    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])\n"
        + "\n".join(lines)
        + "\n"
    )
    job = jobs.run("-n", 1, *OPTIONS, script)
    assert job.returncode != 0 and "TFRUN-518" in job.stderr, job.stderr[-2000:]
