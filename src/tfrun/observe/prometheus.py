"""A job's metrics in Prometheus' text format: base units, one name for each thing.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = (
    *("waiting", "starting", "tracing", "training", "evaluating", "recovering", "saving"),
    *("stopping", "finished", "failed", "preempted", "stopped", "lost"),
)

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, Any]


@dataclass(frozen=True, kw_only=True)
class Family:
    """A metric, and its values by labels; a value that is not known is None and is left out."""

    name: str
    help: str
    samples: Iterable[Sample]
    type: str = "gauge"


def exposition(view: Mapping[str, Any]) -> str:
    """Returns the text for a job's view.

    Args:
      view: `JobView.to_json()`.
    """
    return "".join(_text(family) for family in families(view))


def families(view: Mapping[str, Any]) -> Iterator[Family]:
    """Yields all metrics of a job."""
    yield from _job(view)
    yield from _training(view.get("training") or {}, view.get("checkpoint") or {})
    yield from _tasks(view.get("tasks") or [], view.get("stragglers") or [])


def _job(view: Mapping[str, Any]) -> Iterator[Family]:
    info = (("job", str(view.get("name", ""))), ("script", str(view.get("script", ""))))
    yield Family(name="tfrun_job_info", help="Which job this is.", samples=[(info, 1)])
    state = view.get("state")
    yield Family(
        name="tfrun_job_state",
        help="1 for the state that the job is in.",
        samples=[((("state", name),), int(name == state)) for name in STATES],
    )
    yield _one("tfrun_job_start_time_seconds", "When the job began.", view.get("started"))
    yield _one("tfrun_job_run_seconds", "How long it has run.", view.get("seconds"))
    workers, round = view.get("workers") or {}, view.get("round") or {}
    yield _by("tfrun_workers", "Workers by state.", "state", _only(workers, "up", "down"))
    yield _by("tfrun_workers_wanted", "Bounds of -n.", "bound", _only(workers, "low", "high"))
    yield _one("tfrun_round", "Number of the rendezvous round.", round.get("number"))
    yield _total("tfrun_restarts_total", "Recoveries from failures.", view.get("restarts"))
    recoveries = view.get("recoveries") or []
    kinds: dict[str, int] = dict.fromkeys(("recovered", "grown", "machine_preempted"), 0)
    for recovery in recoveries:
        kinds[recovery["kind"]] = kinds.get(recovery["kind"], 0) + 1
    rounds = "Rounds that followed another one, by why."
    yield _by("tfrun_round_changes_total", rounds, "kind", kinds, type="counter")
    for name, key, text in (
        ("tfrun_recovery_seconds_total", "seconds", "Time between a loss and the next step."),
        ("tfrun_lost_steps_total", "lost_steps", "Steps that had to be done again."),
    ):
        yield _total(name, text, sum(recovery.get(key) or 0 for recovery in recoveries))
    goodput = view.get("goodput") or {}
    share = "Share of the time that produced kept steps, 0 to 1."
    yield _one("tfrun_goodput_ratio", share, goodput.get("share"))
    # A gauge: what a step's time counts as changes when the step is lost.
    spent = "Wall time by what it was spent on."
    yield _by("tfrun_spent_seconds", spent, "part", goodput.get("parts") or {})


def _training(training: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> Iterator[Family]:
    for name, key, text in (
        ("tfrun_epoch", "epoch", "Epoch that is being trained, from 0."),
        ("tfrun_epochs_planned", "epochs", "Epochs that are to be trained."),
        ("tfrun_step", "step", "Step of the optimizer, over all epochs."),
        ("tfrun_progress_ratio", "done", "Share of the training that is done, 0 to 1."),
        ("tfrun_remaining_seconds", "seconds_left", "Expected time to the end."),
        ("tfrun_global_batch_samples", "global_batch", "Samples of one step, over all workers."),
        ("tfrun_samples_per_second", "samples_per_second", "Throughput of all workers."),
        ("tfrun_steps_per_second", "steps_per_second", "Steps each second."),
        ("tfrun_step_seconds", "step_seconds", "Time of one step, mean over the workers."),
    ):
        yield _one(name, text, training.get(key))
    split = "Time of one step by what it is spent on, mean over the workers."
    yield _by("tfrun_step_part_seconds", split, "part", training.get("split") or {})
    logs = "Loss and metrics as Keras last logged them."
    yield _by("tfrun_training_metric", logs, "metric", training.get("logs") or {})
    late = "Steps on parameter servers by how many updates late they were, at the last epoch's end."
    counts = {str(n): count for n, count in enumerate(training.get("staleness") or [])}
    yield _by("tfrun_staleness_steps", late, "updates", counts)
    yield _one("tfrun_checkpoint_step", "Step of the last checkpoint.", checkpoint.get("step"))
    written = "When the last checkpoint was written."
    yield _one("tfrun_checkpoint_timestamp_seconds", written, checkpoint.get("time"))


def _tasks(tasks: list[dict[str, Any]], stragglers: list[dict[str, Any]]) -> Iterator[Family]:
    labels = [
        (("task", str(task.get("task"))), ("host", str(task.get("host") or ""))) for task in tasks
    ]

    def each(name: str, key: str, text: str) -> Family:
        values = [(label, task.get(key)) for label, task in zip(labels, tasks, strict=True)]
        return Family(name=name, help=text, samples=values)

    running = [
        (label, int(task.get("state") == "running"))
        for label, task in zip(labels, tasks, strict=True)
    ]
    yield Family(name="tfrun_worker_up", help="1 while its process runs.", samples=running)
    for name, key, text in (
        ("tfrun_worker_step", "step", "Step of the optimizer."),
        ("tfrun_worker_step_seconds", "step_seconds", "Time of one step."),
        ("tfrun_worker_own_step_seconds", "own_seconds", "Part of it that waits for nobody."),
        ("tfrun_worker_network_step_seconds", "network_seconds", "That it needs to send."),
        ("tfrun_worker_samples_per_second", "samples_per_second", "Throughput of this worker."),
        ("tfrun_worker_resident_memory_bytes", "rss_bytes", "Resident memory."),
        ("tfrun_worker_cpu_cores", "cpu_share", "Processor cores in use."),
        ("tfrun_worker_gpu_memory_bytes", "gpu_bytes", "Memory in use on its GPUs."),
        ("tfrun_worker_report_timestamp_seconds", "reported", "When it was heard of last."),
    ):
        yield each(name, key, text)
    yield Family(
        name="tfrun_worker_step_part_seconds",
        help="Time of one step by what it is spent on.",
        samples=[
            ((*label, ("part", part)), seconds)
            for label, task in zip(labels, tasks, strict=True)
            for part, seconds in (task.get("split") or {}).items()
        ],
    )
    slow = {one["task"] for one in stragglers if one.get("until") is None}
    yield Family(
        name="tfrun_worker_straggler",
        help="1 while it holds up the others.",
        samples=[
            (label, int(task.get("task") in slow))
            for label, task in zip(labels, tasks, strict=True)
        ],
    )


def _one(name: str, text: str, value: Any) -> Family:
    return Family(name=name, help=text, samples=[((), value)])


def _total(name: str, text: str, value: Any) -> Family:
    return Family(name=name, help=text, samples=[((), value)], type="counter")


def _by(name: str, text: str, label: str, values: Mapping[str, Any], type: str = "gauge") -> Family:
    samples = [(((label, key),), value) for key, value in values.items()]
    return Family(name=name, help=text, samples=samples, type=type)


def _only(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: values.get(key) for key in keys}


def _text(family: Family) -> str:
    lines = []
    for labels, value in family.samples:
        number = _number(value)
        if number is not None:
            inner = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            lines.append(
                f"{family.name}{{{inner}}} {number}" if inner else f"{family.name} {number}"
            )
    head = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.type}"]
    return "\n".join([*head, *lines]) + "\n"


def _number(value: Any) -> str | None:
    """Numbers as Prometheus writes them; a loss that is none travels as "NaN" or "Infinity"."""
    if value in ("NaN", "Infinity", "-Infinity"):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
