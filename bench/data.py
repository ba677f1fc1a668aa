"""Input pipelines on one core, tfrun.Dataset against tf.data. Goals: first batch 10 times sooner,
batches 2 times faster, a quarter of the work at most a third of the cost, records no slower.

Batches are of 64 samples of 28 x 28 float32 (or 256 where it says so) or of 64 records of 3 KB.
"Nothing" is the loop that reads them, over a range of numbers."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness import SCRIPTS, compare, record

RECORDS, BYTES = 100_000, 3_000


def measured(what: str, directory: str) -> list[float]:
    """Returns [milliseconds to the first batch, microseconds of CPU time a batch]."""
    out = Path(directory, "out")
    subprocess.run(
        [sys.executable, str(SCRIPTS / "data_input.py"), what, directory],
        env={**os.environ, "BENCH_OUT": str(out)},
        check=True,
        stderr=subprocess.DEVNULL,
        timeout=300,
    )
    return json.loads(out.read_text())


def _next(values: Iterator[Sequence[float]], number: int) -> list[float]:
    return [next(values)[number]]


def write_records(path: Path) -> None:
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(RECORDS):
            writer.write(rng.bytes(BYTES))


NAMES = [
    "nothing",
    *(
        f"arrays{batch}{who}{part}"
        for batch in ("", ", batch 256")
        for who in (", tf.data", "")
        for part in ("", ", worker 0 of 4")
    ),
    "arrays, resume",
    "records, tf.data",
    "records",
    "records again",
    "records, parsed, tf.data",
    "records, parsed",
]


def main(repeats: int = 5, kept: str = "") -> None:
    """Measures, by turns.

    Args:
      repeats: how often.
      kept: a directory with what was measured before, for a machine that is quiet for minutes only.
    """
    both: dict[str, list[list[float]]] = {name: [] for name in NAMES}
    with contextlib.nullcontext(kept) if kept else tempfile.TemporaryDirectory() as directory:
        measurements, records = Path(directory, "both.json"), Path(directory, "records.tfrecord")
        if measurements.exists():
            both = json.loads(measurements.read_text())
        else:
            write_records(records)
        for _ in range(repeats):
            for name in NAMES:
                both[name].append(measured(name, directory))
        measurements.write_text(json.dumps(both))
    report(both)


def report(both: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Records what was measured: for each pipeline, pairs as `measured` returns them."""
    repeats = len(both["nothing"])
    for number, unit in enumerate(("ms to the first batch", "us of CPU a batch")):
        results = compare(
            {name: functools.partial(_next, iter(values), number) for name, values in both.items()},
            repeats,
        )
        median = {name: numbers["median"] for name, numbers in results.items()}
        ratios = {
            f"{name.partition(', parsed')[0]}_{which}over_tf_data".replace(" ", "_"): (
                median[f"{name}, tf.data"] / median[ours]
            )
            for name, which, ours in [
                ("arrays", "", "arrays"),
                ("arrays, batch 256", "", "arrays, batch 256"),
                ("records", "", "records"),
                ("records", "again_", "records again"),
                ("records, parsed", "parsed_", "records, parsed"),
            ]
        }
        # The loop itself, which reads from nothing, costs everybody the same.
        loop = median["nothing"]
        for batch in ("", ", batch 256"):
            for who in ("", ", tf.data"):
                one, of_4 = (
                    median[f"arrays{batch}{who}"],
                    median[f"arrays{batch}{who}, worker 0 of 4"],
                )
                name = f"one of 4 workers{batch}{who}".replace(", ", " ").replace(" ", "_")
                ratios[name] = of_4 / one
                ratios[f"{name}_less_the_loop"] = (of_4 - loop) / (one - loop)
        record(f"data, {unit}", unit, results, **ratios)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, *sys.argv[2:3])
