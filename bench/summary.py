"""The short tables of docs/performance.md: a row for each model, a column for each way to train it.

They choose from what benchmarks have recorded and measure nothing. `plots.py` draws the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from models import LOOP, PER_WORKER, PLAIN
from peers import ALONE, OURS, TORCH

WORKERS = 2
# A column shows the first of these contenders that was measured; the second one has a mark then.
ONE = "one process"
COLUMNS = {
    "tfrun": (OURS,),
    "PyTorch DDP": (TORCH,),
    "TensorFlow MWMS": (LOOP,),
    ONE: (PLAIN, ALONE),
}
MARK = "¹"
# What the tables call a model: the name of its benchmark, and of its workload.
MODELS = {
    "small CNN": ("seed CNN against its peers", "cnn"),
    "ResNet50, 96x96": ("ResNet50, 96x96", "resnet50"),
    "ResNet50, 224x224": ("ResNet50, 224x224", "resnet50-224"),
    "encoder of 109 million weights": ("encoder of 109 million weights", "encoder"),
    "decoder of 34 million weights": ("decoder of 34 million weights", "decoder"),
    "transformer of 3 million weights": ("transformer against its peers", "transformer"),
    "two-tower recommender": ("two-tower recommender against its peers", "recommender"),
}
# The benchmarks of kills by model; and the one in which the small CNN's other worker stays.
KILLS = {
    "small CNN": ("SIGKILL to first new step", "steps redone"),
    "ResNet50": ("SIGKILL to first new step, ResNet50", "steps redone, ResNet50"),
}
STAYING = "workers stay: cnn, 2 workers"
NAMES = {
    "tfrun, Keras 3": "tfrun, both start again",
    "tfrun, Keras 3, workers stay": "tfrun, the other one stays",
}

# What `networks.py` has measured of a model, and who has a column of it.
NETWORKS = ("ResNet50, 96x96", "encoder of 109 million weights")
SETTINGS = {
    "tfrun": "tfrun, default options",
    "`--overlap off`": "tfrun, --overlap off",
    "two threads": "tfrun, two threads",
    "`--compress bf16`": "tfrun, --compress bf16",
    "PyTorch DDP": TORCH,
}

Measured = Mapping[str, Any]


def speed(measured: Measured) -> str:
    """Samples a second of all workers together."""
    rows = []
    for name, (benchmark, workload) in MODELS.items():
        if found := samples(measured, name):
            cells = [_cell(*found[column]) if column in found else "" for column in COLUMNS]
            batch = f"{PER_WORKER[workload]}"
            rows.append([name, batch, *cells, _runs(measured, benchmark)])
    return _table(["samples a second", "batch of a worker", *COLUMNS, "runs"], rows)


def samples(measured: Measured, name: str) -> dict[str, tuple[float, bool]]:
    """Samples a second of a model, by column, and whether the column's second contender made them.

    Computed from the median of the steps; empty where tfrun was not measured.
    """
    benchmark, workload = MODELS[name]
    return {
        column: (1000 * (1 if column == ONE else WORKERS) * PER_WORKER[workload] / step, second)
        for column, (step, second) in _medians(measured, benchmark).items()
    }


def number(value: float) -> str:
    """Four digits, or all of those before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def quantity(measured: Measured, kind: str) -> str:
    """The table of what `models.py` measures beside the steps."""
    rows, unit = [], ""
    for name, (benchmark, _) in MODELS.items():
        table = f"{benchmark}, {kind}"
        if found := _medians(measured, table):
            unit = measured[table]["unit"]
            cells = [_cell(*found[column]) if column in found else "" for column in COLUMNS]
            rows.append([name, *cells, f"{measured[table]['results'][OURS]['repeats']}"])
    return _table([unit, *COLUMNS, "runs"], rows)


def networks(measured: Measured) -> str:
    """Milliseconds a step by link, beside those of one worker alone, and of the bytes alone."""
    rows = []
    for name in NETWORKS:
        found = measured.get(f"{name}, two hosts", {"results": {}, "ratios": {}})
        steps, ratios = found["results"], found["ratios"]
        links = [row.removesuffix(f": {SETTINGS['tfrun']}") for row in steps if ": " in row]
        for link in (one for one in links if f"{one}: {SETTINGS['tfrun']}" in steps):
            cells = [steps.get(f"{link}: {who}") for who in SETTINGS.values()]
            sent = ratios[f"MB sent a step: {link}: {SETTINGS['tfrun']}"]
            least = [steps[ALONE]["median"], sent * 8 / float(link.split()[0])]
            shown = [number(cell["median"]) if cell else "" for cell in cells]
            rows.append([name, link, *shown, *map(number, least)])
    head = ["ms a step", "link", *SETTINGS, "one worker alone", "the link alone"]
    return _table(head, rows)


def deaths(measured: Measured) -> str:
    """Seconds from SIGKILL to the first new step, and the steps that are done again."""
    rows = [
        [model, name, number(seconds["median"]), number(redone), f"{seconds['repeats']}"]
        for model in KILLS
        for name, seconds, redone in kills(measured, model)
    ]
    return _table(["model", "with", "s", "steps done again", "kills"], rows)


def kills(
    measured: Measured, model: str = "small CNN"
) -> list[tuple[str, Mapping[str, float], float]]:
    """Who recovers, the seconds that this takes, and the steps done again after one kill."""
    killed, redone = KILLS[model]
    found = []
    if model == "small CNN" and (staying := measured.get(STAYING)):
        seconds = staying["results"]["SIGKILL to first new step"]
        again = staying["ratios"]["steps_redone"] / seconds["repeats"]
        found.append(("tfrun, the other one stays", seconds, again))
    for name, seconds in measured.get(killed, {}).get("results", {}).items():
        again = measured[redone]["results"][name]["median"]
        found.append((NAMES.get(name, name), seconds, again))
    return found


def machine(measured: Measured) -> str:
    """Where, with what and when all of this was measured."""
    here = measured["machine"]
    return (
        f"{here['cpu']}, {here['cores']} cores, Python {here['python']}, TensorFlow "
        f"{here['tensorflow']}. The newest numbers are of {here['date']}; others are older."
    )


TABLES: dict[str, Callable[[Measured], str]] = {
    "summary, samples a second": speed,
    "summary, start to first step": lambda found: quantity(found, "start to first step"),
    "summary, most memory of a worker": lambda found: quantity(found, "most memory of a worker"),
    "summary, a worker is killed": deaths,
    "summary, machine": machine,
    "summary, networks": networks,
}


def _medians(measured: Measured, benchmark: str) -> dict[str, tuple[float, bool]]:
    """By column, and whether it is the column's second contender."""
    results = measured.get(benchmark, {}).get("results", {})
    if OURS not in results:
        return {}
    return {
        column: (results[who]["median"], who != contenders[0])
        for column, contenders in COLUMNS.items()
        for who in [next((one for one in contenders if one in results), None)]
        if who is not None
    }


def _runs(measured: Measured, benchmark: str) -> str:
    """How many; `models.py` counts the epochs of its runs, and each run starts once."""
    counted = measured[benchmark]["results"][OURS]["repeats"]
    if start := measured.get(f"{benchmark}, start to first step"):
        runs = start["results"][OURS]["repeats"]
        epochs = counted // runs
        return f"{runs}, of {epochs} epoch{'s' if epochs > 1 else ''}"
    return f"{counted}"


def _cell(value: float, second: bool) -> str:
    return number(value) + (f" {MARK}" if second else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "Not measured on this machine yet."
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
