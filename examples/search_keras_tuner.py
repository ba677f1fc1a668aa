"""Searches a learning rate and a width with KerasTuner; each trial is a job of its own.

    pip install keras-tuner
    python examples/search_keras_tuner.py --trials 6 --workers 2

KerasTuner's `run_trial` gives the trial to `tfrun`, which runs this same file on several workers,
and tells the tuner the loss that the job's status ends with.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

TFRUN = str(Path(sys.executable).with_name("tfrun"))
EPOCHS = 3


def train(rate: float, units: int) -> None:
    """Trains one model: what each worker of a trial's job runs."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(2048, 8)).astype("float32")
    y = np.sin(x).sum(1)
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer=keras.optimizers.Adam(rate), loss="mse")
    data = (x[:1536], y[:1536])
    model.fit(*data, batch_size=64, epochs=EPOCHS, validation_data=(x[1536:], y[1536:]), verbose=2)


def run_job(folder: Path, workers: int, rate: float, units: int) -> float:
    """Runs a trial's job to its end, and returns its last validation loss."""
    command = [TFRUN, "-n", str(workers), "--run-dir", str(folder), __file__]
    subprocess.run([*command, "--rate", str(rate), "--units", str(units)], check=True)
    status = subprocess.run(
        [TFRUN, "status", "--json", folder], capture_output=True, text=True, check=True
    )
    return json.loads(status.stdout)["epochs"][-1]["logs"]["val_loss"]


def search(trials: int, workers: int, folder: Path) -> Any:
    """Runs the trials one after the other, and returns the tuner."""
    import keras_tuner

    class Jobs(keras_tuner.RandomSearch):
        def run_trial(self, trial: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
            values = trial.hyperparameters
            rate = values.Float("rate", 1e-4, 1e-1, sampling="log")
            units = values.Int("units", 4, 64, sampling="log")
            run = folder / f"trial-{trial.trial_id}"
            return {"val_loss": run_job(run, workers, rate, units)}

    tuner = Jobs(
        objective=keras_tuner.Objective("val_loss", "min"),
        max_trials=trials,
        seed=1,
        directory=folder,
        project_name="search",
    )
    tuner.search()
    return tuner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("tfrun-runs"), help="for the runs")
    parser.add_argument("--rate", type=float, help="train once, with this learning rate")
    parser.add_argument("--units", type=int, default=16)
    args = parser.parse_args()
    if args.rate is not None:
        train(args.rate, args.units)
        return
    tuner = search(args.trials, args.workers, args.folder)
    (best,) = tuner.oracle.get_best_trials(1)
    print("best:", best.hyperparameters.values, f"val_loss {best.score:.4f}")


if __name__ == "__main__":
    main()
