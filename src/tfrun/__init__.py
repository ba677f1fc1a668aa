"""tfrun: the launcher and elastic runtime for multi-worker Keras 3 / TensorFlow 2.

Importing `tfrun` is cheap: TensorFlow is imported by the first call that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfrun.job.errors import TfrunError
from tfrun.job.version import __version__
from tfrun.job.world import World, world

if TYPE_CHECKING:
    from tfrun.data.dataset import Dataset
    from tfrun.data.order.position import Position
    from tfrun.notebook.launch import launch
    from tfrun.train.chief_callbacks import ChiefOnly
    from tfrun.train.learning_rate import scaled_lr
    from tfrun.train.train_state import TrainState
    from tfrun.worker.strategy import strategy

__all__ = [
    "ChiefOnly",
    "Dataset",
    "Position",
    "TfrunError",
    "TrainState",
    "World",
    "__version__",
    "launch",
    "scaled_lr",
    "strategy",
    "world",
]

# Public names that need TensorFlow, and the module each one comes from (PEP 562).
_LAZY = {
    "ChiefOnly": "tfrun.train.chief_callbacks",
    "Dataset": "tfrun.data.dataset",
    "Position": "tfrun.data.order.position",
    "TrainState": "tfrun.train.train_state",
    "scaled_lr": "tfrun.train.learning_rate",
    "strategy": "tfrun.worker.strategy",
}


# Those that do without it, and are seldom wanted.
_LIGHT = {"launch": "tfrun.notebook.launch"}


def __getattr__(name: str):
    import importlib

    if name in _LIGHT:
        return getattr(importlib.import_module(_LIGHT[name]), name)
    if name in _LAZY:
        from tfrun.patches.apply import apply

        apply()  # where no job has done so
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'tfrun' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
