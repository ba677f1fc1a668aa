"""Searches a learning rate and a width with Optuna; each trial is a job of its own.

    pip install optuna
    python examples/search_optuna.py --trials 10 --workers 2

The search runs outside the jobs and needs no TensorFlow: it starts `tfrun` on this same file, reads
with `tfrun status --json` how the job is, and stops a job that is worse than the others so far.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TFRUN = str(Path(sys.executable).with_name("tfrun"))
EPOCHS = 30
JOB_SECONDS = 600.0


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


def epochs_of(run: Path) -> list[dict[str, Any]]:
    """Returns what is known of the epochs that a job has done, the first one first."""
    done = subprocess.run(
        [TFRUN, "status", "--json", run], capture_output=True, text=True, check=False
    )
    # Until the job has begun to write there is no run yet.
    return json.loads(done.stdout)["epochs"] if done.returncode == 0 else []


def search(trials: int, workers: int, folder: Path) -> Any:
    """Runs the trials one after the other, and returns Optuna's study."""
    import optuna

    def objective(trial: optuna.Trial) -> float:
        rate = trial.suggest_float("rate", 1e-4, 1e-1, log=True)
        units = trial.suggest_int("units", 4, 64, log=True)
        run = folder / f"trial-{trial.number}"
        command = [TFRUN, "-n", str(workers), "--run-dir", str(run), __file__]
        told, deadline = 0, time.monotonic() + JOB_SECONDS
        with subprocess.Popen([*command, "--rate", str(rate), "--units", str(units)]) as job:
            try:
                while job.poll() is None and time.monotonic() < deadline:
                    for number, epoch in enumerate(epochs_of(run)[told:], told):
                        trial.report(epoch["logs"]["val_loss"], number)
                        told = number + 1
                    if trial.should_prune():
                        raise optuna.TrialPruned
                    time.sleep(0.5)
            finally:
                if job.poll() is None:
                    subprocess.run([TFRUN, "stop", "--now", run], check=False)
                    job.terminate()
        if job.returncode != 0:
            raise RuntimeError(f"the job of trial {trial.number} has failed: see {run}")
        return epochs_of(run)[-1]["logs"]["val_loss"]

    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=1),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=1),
    )
    study.optimize(objective, n_trials=trials)
    return study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("tfrun-runs"), help="for the runs")
    parser.add_argument("--rate", type=float, help="train once, with this learning rate")
    parser.add_argument("--units", type=int, default=16)
    args = parser.parse_args()
    if args.rate is not None:
        train(args.rate, args.units)
        return
    study = search(args.trials, args.workers, args.folder)
    states = [trial.state.name.lower() for trial in study.trials]
    print("trials:", ", ".join(states))
    print("best:", study.best_params, f"val_loss {study.best_value:.4f}")


if __name__ == "__main__":
    main()
