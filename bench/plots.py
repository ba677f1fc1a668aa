"""Draws docs/images/speed.svg from bench/results/latest.json: steps of all contenders."""

from __future__ import annotations

import json

from matplotlib.figure import Figure
from tables import HERE, PAGE

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


def main() -> None:
    measured = json.loads((HERE / "results" / "latest.json").read_text())
    titles = [title for title in TITLES if title in measured]
    figure = Figure(figsize=(8, 2.6 * len(titles)), layout="constrained")
    for axes, title in zip(figure.subplots(len(titles), squeeze=False)[:, 0], titles, strict=True):
        results = measured[title]["results"]
        medians = [numbers["median"] for numbers in results.values()]
        spread = [
            [numbers["median"] - numbers["low"] for numbers in results.values()],
            [numbers["high"] - numbers["median"] for numbers in results.values()],
        ]
        colours = [OURS if name.startswith("tfrun") else OTHERS for name in results]
        bars = axes.barh(list(results), medians, xerr=spread, color=colours, ecolor="0.2")
        axes.bar_label(bars, fmt="%.0f", padding=6)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_title(f"{title}, ms a step (lower is better)", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    target = PAGE.parent / "images" / "speed.svg"
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
