"""Describes an event, or how a training begins, in one line for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfrun.job import reports
from tfrun.observe.events import JobEvent
from tfrun.observe.exception_summary import essence
from tfrun.observe.stragglers import sentence


def told(event: JobEvent) -> tuple[str, str] | None:
    """Returns what a person reads of an event, and its level: "info", "warning" or "error".

    None for what nobody wants to read.
    """
    try:
        line = _line(event)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # another version's, or a worker's own invention
    if line is None:
        return None
    return (line, "info") if isinstance(line, str) else line


def name_of(task: str) -> str:
    """Returns a task's name as people read it: "worker 1"."""
    return task.replace(":", " ")


def counted(count: int, what: str) -> str:
    """Returns "1 worker" or "2 workers"."""
    return f"{count:,} {what}" + "s" * (count != 1)


def _line(event: JobEvent) -> str | tuple[str, str] | None:
    match event.get("event"):
        case "job":
            return "the job begins" if not event.get("goes_on") else "the job goes on"
        case "agent_joined":
            return f"{event['host']} is there"
        case "agent_lost":
            return f"{event['agent']} was lost: {event['reason']}", "error"
        case "agent_back":
            return f"{event['agent']} has been heard from again"
        case "cut_off":
            return "no machine has been heard from", "warning"
        case "heard_again":
            return f"the machines have been heard from again after {event['seconds']:.1f} s"
        case "let_go":
            return f"{event['agent']} is let go"
        case "wanted_back":
            return f"{event['agent']} is being preempted", "warning"
        case "missing":
            return (
                f"{counted(event['events'], 'event')} could not be written here: {event['reason']}",
                "warning",
            )
        case "notice":
            return str(event["text"]), "warning"
        case "doubt":
            return f"{event['code']}: {event['text']}", "warning"
        case "interrupted":
            return f"{event['signal']} came", "warning"
        case "waiting":
            return f"waiting for {', '.join(event['agents'])}", "warning"
        case "resized":
            return f"round {event['round']} has another number of workers"
        case "one_replica_each":
            return f"each worker has one replica from now on: {event['reason']}", "warning"
        case "failure":
            return str(event["how"]), "error"
        case "worker_exited" if event["code"] and event.get("requested"):
            return f"{name_of(event['task'])} was stopped"
        case "worker_exited" if event["code"]:
            return f"{name_of(event['task'])}: {event['status']}", "error"
        case "recovered" | "grown" | "machine_preempted" as kind:
            how = {"recovered": "recovered", "grown": "grown"}.get(
                kind, "went on without a machine"
            )
            how += " in place" if event.get("in_place") else ""
            lost = f", {event['lost_steps']} steps lost" if event.get("lost_steps") else ""
            digits = 2 if event.get("in_place") and event["seconds"] < 1 else 1
            return f"{how} at step {event['step']:,} after {event['seconds']:.{digits}f} s{lost}"
        case "successor":
            return _successor_line(name_of(event["task"]), event)
        case "successors_given_up":
            return "successors came to nothing, and the job goes on without", "warning"
        case "memory_saved" if event["step"] >= 0:
            return f"step {event['step']:,} was saved from memory"
        case "straggler":
            return sentence(event), "warning"
        case "straggler_over":
            return f"{name_of(event['task'])} is as fast as the others again"
        case "job_ended":
            level = "info" if event["state"] == "finished" else "error"
            return f"the job has ended: {event['state']}", level
        case "round" if event["state"] == "running":
            return f"round {event['number']} runs"
        case "worker_report":
            return _report_line(name_of(event["task"]), reports.of(event))
    return None


def _successor_line(name: str, event: JobEvent) -> str | tuple[str, str] | None:
    match event["state"]:
        case "started":
            return f"a successor of {name} starts on {event['agent']}"
        case "ready":
            return f"the successor of {name} is ready after {event['seconds']:.1f} s"
        case "taken":
            return f"a successor is {name} from round {event['round']} on"
        case "lost":
            return f"the successor of {name} is lost with {event['agent']}", "warning"
        case "ended":
            return f"the successor of {name} came to nothing: {event['status']}", "warning"
    return None


def _report_line(name: str, report: reports.Report | None) -> str | tuple[str, str] | None:
    match report:
        case reports.Error():
            return f"{name}: {' '.join(essence(report)[:2])[:300]}", "error"
        case reports.EpochEnd(epoch=epoch, logs=logs):
            shown = [f"{k} {v:.4g}" for k, v in logs.items() if isinstance(v, int | float)]
            return " · ".join([f"epoch {epoch + 1} done", *shown[:6]])
        case reports.Resumed(step=step):
            return f"{name} goes on from step {step:,}"
        case reports.WorkerNotice(text=text):
            return f"{name}: {text}", "warning"
    return None


def training_line(report: reports.Training) -> str:
    """Returns the line for a training that begins."""
    batch, workers = report.global_batch, report.workers or 1
    count = counted(workers, "worker")
    scaled, own = "", report.script_batch
    if own and batch:
        many, rest = divmod(batch, own)
        scaled = f" ({own} in the script)" if rest else f" = {many} x {own} of the script"
    if batch is None:
        parts = ["global batch: known to the script alone", count]
    elif workers == 1:
        parts = [f"global batch {batch}{scaled}", count]
    else:
        most = "at most " if batch % workers else ""
        parts = [
            f"global batch {batch}{scaled}",
            f"{most}{-(-batch // workers)} a worker ({count})",
        ]
    travel = [report.compression] if report.compression else []
    return " · ".join([*parts, *_rate(report.rate), *travel])


def training_key(report: reports.Training) -> tuple[Any, ...]:
    """Returns what has to change for the line to be worth another look.

    A plain rate does not count: scripts set it whenever they like.
    """
    scaled = tuple(report.rate.items()) if "rule" in report.rate else ()
    return report.global_batch, report.workers, scaled


def _rate(rate: Mapping[str, Any]) -> list[str]:
    warmup = rate.get("warmup_steps")
    rise = f", warm-up of {counted(warmup, 'step')}" if warmup else ""
    if "schedule" in rate:
        text = f"learning rate by {rate['schedule']}"
        if "factor" not in rate:
            return [text]
        return [f"{text} x {rate['factor']:.6g} ({rate['rule']} rule{rise})"]
    if "rate" not in rate:
        return []
    text = f"learning rate {rate['rate']:.6g}"
    if "rule" not in rate:
        return [text]
    how = f"{rate['rule']} rule: {rate['base']:.6g} at batch {rate['base_batch']}"
    return [f"{text} ({how}{rise})"]
