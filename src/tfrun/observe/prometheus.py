"""A job's metrics for Prometheus: base units, one name for each thing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tfrun.observe.time_series import metric
from tfrun.observe.view_rounds import KINDS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = (
    *("waiting", "starting", "tracing", "training", "evaluating", "recovering", "saving"),
    *("stopping", "finished", "failed", "preempted", "stopped", "lost"),
)
PART = "Time of one step by what it is spent on"


def exposition(view: Mapping[str, Any]) -> bytes:
    """Returns what Prometheus reads of a job's status (`JobView.to_json`)."""
    return generate_latest(Metrics(view))


class Metrics(Collector):
    """The metrics of a job's view; a value that is not known is left out."""

    def __init__(self, view: Mapping[str, Any]) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        view = self._view
        yield from _job(view)
        yield from _training(view.get("training") or {}, view.get("checkpoint") or {})
        yield from _tasks(view.get("tasks") or [], view.get("stragglers") or [])


def _job(view: Mapping[str, Any]) -> Iterator[Metric]:
    names = [str(view.get("name", "")), str(view.get("script", ""))]
    yield _family("tfrun_job_info", "Which job this is.", ("job", "script"), [(names, 1)])
    states = {name: int(name == view.get("state")) for name in STATES}
    yield _by("tfrun_job_state", "1 for the state that the job is in.", "state", states)
    yield _one("tfrun_job_start_time_seconds", "When the job began.", view.get("started"))
    yield _one("tfrun_job_run_seconds", "How long it has run.", view.get("seconds"))
    workers, round = view.get("workers") or {}, view.get("round") or {}
    yield _by("tfrun_workers", "Workers by state.", "state", _only(workers, "up", "down"))
    yield _by("tfrun_workers_wanted", "Bounds of -n.", "bound", _only(workers, "low", "high"))
    yield _one("tfrun_round", "Number of the rendezvous round.", round.get("number"))
    yield _one("tfrun_restarts_total", "Recoveries from failures.", view.get("restarts"))
    changes = view.get("changes") or {}
    rounds = "Rounds that followed another one, by why."
    yield _by("tfrun_round_changes_total", rounds, "kind", _only(changes, *KINDS))
    stays = "The same, by whether workers that were left stayed in their processes."
    starts = _only(changes, "in_place", "afresh")
    yield _by("tfrun_round_changes_by_start_total", stays, "start", starts)
    waiting = "Processes that are to take the places of workers."
    successors = _only(view.get("successors") or {}, "starting", "ready")
    yield _by("tfrun_successors", waiting, "state", successors)
    stayed = sum(_has_stayed(task) for task in view.get("tasks") or [])
    text = "Workers that have stayed in their processes since an earlier round."
    yield _one("tfrun_workers_stayed", text, stayed)
    for name, key, text in (
        ("tfrun_recovery_seconds_total", "seconds", "Time between a loss and the next step."),
        ("tfrun_lost_steps_total", "lost_steps", "Steps that had to be done again."),
    ):
        yield _one(name, text, changes.get(key))
    goodput = view.get("goodput") or {}
    share = "Share of the time that produced kept steps, 0 to 1."
    yield _one("tfrun_goodput_ratio", share, goodput.get("share"))
    # A gauge: what a step's time counts as changes when the step is lost.
    spent = "Wall time by what it was spent on."
    yield _by("tfrun_spent_seconds", spent, "part", goodput.get("parts") or {})


def _training(training: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> Iterator[Metric]:
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
    yield _by(
        "tfrun_step_part_seconds",
        f"{PART}, mean over the workers.",
        "part",
        training.get("split") or {},
    )
    logs = "Loss and metrics as Keras last logged them."
    yield _by("tfrun_training_metric", logs, "metric", training.get("logs") or {})
    late = "Steps on parameter servers by how many updates late they were, at the last epoch's end."
    counts = {str(n): count for n, count in enumerate(training.get("staleness") or [])}
    yield _by("tfrun_staleness_steps", late, "updates", counts)
    yield _one("tfrun_checkpoint_step", "Step of the last checkpoint.", checkpoint.get("step"))
    written = "When the last checkpoint was written."
    yield _one("tfrun_checkpoint_timestamp_seconds", written, checkpoint.get("time"))


def _tasks(tasks: list[dict[str, Any]], stragglers: list[dict[str, Any]]) -> Iterator[Metric]:
    slow = {one["task"] for one in stragglers if one.get("until") is None}
    each = [((str(task.get("task")), str(task.get("host") or "")), task) for task in tasks]
    for name, read, text in (
        ("up", lambda task: int(task.get("state") == "running"), "1 while its process runs."),
        ("step", "step", "Step of the optimizer."),
        ("step_seconds", "step_seconds", "Time of one step."),
        ("own_step_seconds", "own_seconds", "Part of it that waits for nobody."),
        ("network_step_seconds", "network_seconds", "That it needs to send."),
        ("samples_per_second", "samples_per_second", "Throughput of this worker."),
        ("resident_memory_bytes", "rss_bytes", "Resident memory."),
        ("cpu_cores", "cpu_share", "Processor cores in use."),
        ("gpu_memory_bytes", "gpu_bytes", "Memory in use on its GPUs."),
        ("report_timestamp_seconds", "reported", "When it was last heard from."),
        (
            "straggler",
            lambda task: int(task.get("task") in slow),
            "1 while it holds up the others.",
        ),
    ):
        values = [(who, read(task) if callable(read) else task.get(read)) for who, task in each]
        yield _family(f"tfrun_worker_{name}", text, ("task", "host"), values)
    parts = [
        ((*who, part), s) for who, task in each for part, s in (task.get("split") or {}).items()
    ]
    yield _family("tfrun_worker_step_part_seconds", f"{PART}.", ("task", "host", "part"), parts)


def _has_stayed(task: Mapping[str, Any]) -> bool:
    return task.get("since_round", task.get("round")) != task.get("round")


def _one(name: str, text: str, value: Any) -> Metric:
    return _family(name, text, (), [((), value)])


def _by(name: str, text: str, label: str, values: Mapping[str, Any]) -> Metric:
    return _family(name, text, (label,), [((key,), value) for key, value in values.items()])


def _only(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: values.get(key) for key in keys}


def _family(
    name: str, text: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], Any]]
) -> Metric:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, text, labels=labels)
    for values, value in samples:
        if (number := metric(value)) is not None:
            family.add_metric(values, number)
    return family
