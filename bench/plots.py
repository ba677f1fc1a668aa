"""Draws the pictures of the pages of measurements from bench/results/latest.json.

speed.svg has what the short tables have, contenders.svg the steps of all contenders.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import summary
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from tables import DOCS, HERE

TITLES = (
    "100 MB in 160 tensors",
    "seed CNN against its peers",
    "transformer against its peers",
    "two-tower recommender against its peers",
    "ResNet50, 96x96",
    "encoder of 109 million weights",
    "decoder of 34 million weights",
)
OURS, OTHERS = "tab:blue", "tab:gray"
SHORT = {  # who recovers, in few words
    "tfrun, the other one stays": "tfrun, one stays",
    "tfrun, both start again": "tfrun, both restart",
    "restart + BackupAndRestore, legacy Keras": "TensorFlow",
    "torchrun, DDP, a checkpoint each epoch": "torchrun",
    "Ray Train, legacy Keras, one each epoch": "Ray Train",
}


def main() -> None:
    matplotlib.rcParams["svg.hashsalt"] = "tfrun"  # the same numbers give the same file
    measured = json.loads((HERE / "results" / "latest.json").read_text())
    _save(in_short(measured), "speed.svg")
    _save(contenders(measured), "contenders.svg")


def in_short(measured: Mapping[str, Any]) -> Figure:
    """Samples a second of each model, and how long a death stops a job."""
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    *each, last = figure.subplots(2, 4).flat
    panels: list[tuple[Axes, str, dict[str, float]]] = []
    for axes, name in zip(each, summary.MODELS, strict=True):
        found = summary.samples(measured, name)
        shown = {column: value for column, (value, _) in found.items()}
        panels.append((axes, f"{name.partition(' of ')[0]}:\nsamples a second", shown))
    shown = {
        SHORT.get(name, name): seconds["median"] for name, seconds, _ in summary.kills(measured)
    }
    panels.append((last, "small CNN, a kill:\ns to the next step", shown))
    for axes, title, shown in panels:
        bars = _bars(axes, list(shown), list(shown.values()))
        axes.bar_label(bars, [summary.number(n) for n in shown.values()], padding=3, fontsize=8)
        axes.set_title(title, loc="left", fontsize=9)
        axes.tick_params(labelsize=8)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.margins(x=0.35)
    return figure


def contenders(measured: Mapping[str, Any]) -> Figure:
    """Milliseconds a step of all contenders."""
    titles = [title for title in TITLES if title in measured]
    figure = Figure(figsize=(8, 2.6 * len(titles)), layout="constrained")
    for axes, title in zip(figure.subplots(len(titles), squeeze=False)[:, 0], titles, strict=True):
        results = measured[title]["results"]
        medians = [numbers["median"] for numbers in results.values()]
        spread = [
            [numbers["median"] - numbers["low"] for numbers in results.values()],
            [numbers["high"] - numbers["median"] for numbers in results.values()],
        ]
        bars = _bars(axes, list(results), medians, xerr=spread, ecolor="0.2")
        axes.bar_label(bars, fmt="%.0f", padding=6)
        axes.margins(x=0.12)
        axes.set_title(f"{title}, ms a step (lower is better)", loc="left", fontsize=10)
    return figure


def _bars(axes: Axes, names: Sequence[str], values: Sequence[float], **look: Any) -> BarContainer:
    colours = [OURS if name.startswith("tfrun") else OTHERS for name in names]
    bars = axes.barh(names, values, color=colours, **look)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    return bars


def _save(figure: Figure, name: str) -> None:
    folder = DOCS / "images"
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / name, metadata={"Date": None})


if __name__ == "__main__":
    main()
