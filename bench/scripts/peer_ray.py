"""Milliseconds a step of `fit` under Ray Train's TensorflowTrainer, which needs legacy Keras.

peer_ray.py WORKLOAD WORKERS
"""

import os
import sys
from pathlib import Path

import ray
from ray.train import ScalingConfig
from ray.train.tensorflow import TensorflowTrainer

HERE = Path(__file__).parent


def train(settings: dict) -> None:
    """One worker: the same script as without Ray."""
    import runpy

    import ray.train

    os.environ |= settings["environment"] | {"RANK": str(ray.train.get_context().get_world_rank())}
    sys.path.insert(0, settings["here"])
    sys.argv = ["peer_fit.py", settings["name"], "legacy"]
    runpy.run_path(settings["here"] + "/peer_fit.py", run_name="__main__")


name, workers = sys.argv[1], int(sys.argv[2])
ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False)
passed = {k: v for k, v in os.environ.items() if k.startswith(("BENCH_", "TF_CPP_"))}
TensorflowTrainer(
    train,
    train_loop_config={"name": name, "here": str(HERE), "environment": passed},
    scaling_config=ScalingConfig(num_workers=workers),
).fit()
