"""A job's status (`JobView.to_json`) in a few lines for a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tfrun.observe.event_lines import counted, name_of

MOST_LOGS = 6
MOST_WORKERS = 16
MOST_STRAGGLERS = 3
BAR_WIDTH = 30
_STYLES = {
    **{"training": "green", "finished": "green", "failed": "red bold", "lost": "red bold"},
    **{"recovering": "yellow", "waiting": "yellow", "saving": "yellow", "stopping": "yellow"},
}
_LEVELS = {"warning": "yellow", "error": "red"}

Status = Mapping[str, Any]


def board(
    status: Status, *, events: int = 3, workers: int = MOST_WORKERS, height: int | None = None
) -> RenderableType:
    """Returns what shows a job.

    Args:
      status: as `JobView.to_json` gives it.
      events: how many of the last ones to show.
      workers: a table of as many workers at most; those that stand out come first. 0 is no table.
      height: it is drawn again and again on so many lines: what is too long is cut, so that
        nothing jumps, and there are fewer workers and events when the terminal is low. None: it
        is drawn once, in full.
    """
    lines: list[RenderableType] = [_head(status)]
    training = status.get("training")
    if training:
        lines += [_bar(training), *_numbers(training, status)]
    lines += [Text(line, "yellow") for line in _stragglers(status)]
    if height is not None:
        events, workers = _room(height - len(lines), events, workers)
    if workers and status["tasks"]:
        lines.append(_table(status["tasks"], workers, cuts=height is not None))
    lines += [_event(event) for event in status["events"][-events:]] if events else []
    if status.get("failure"):
        lines += _failure(status["failure"])
    if height is not None:
        for line in lines:
            if isinstance(line, Text):
                line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


def _room(lines: int, events: int, workers: int) -> tuple[int, int]:
    """How many events and workers there is room for; the table has two lines more."""
    events = max(0, min(events, lines // 4))
    return events, max(0, min(workers, lines - events - 2))


def duration(seconds: float) -> str:
    """Returns "0:09", "12:30" or "3:04:05"."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def milliseconds(seconds: float) -> str:
    """Returns "0.25 ms", "12 ms" or "1.5 s"."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2g} ms"


def split_line(training: Mapping[str, Any]) -> str:
    """Returns the time of a step and its parts, in one line; "" before it is known."""
    seconds = training.get("step_seconds")
    if not seconds:
        return ""
    known = [(part, s) for part, s in training["split"].items() if s is not None]
    parts = ", ".join(f"{part} {100 * s / seconds:.0f} %" for part, s in known)
    return f"a step {milliseconds(seconds)}" + (f": {parts}" if parts else "")


def goodput_line(goodput: Mapping[str, Any]) -> str:
    """Returns the share of the time that was spent on steps, and what else took any."""
    whole = goodput["seconds"] or 1.0
    others = [(kind, s) for kind, s in goodput["parts"].items() if kind != "training"]
    others = sorted((pair for pair in others if pair[1] >= 0.005 * whole), key=lambda p: -p[1])
    parts = ", ".join(f"{kind} {_seconds(s)}" for kind, s in others)
    return f"goodput {100 * goodput['share']:.0f} %" + (f" · {parts}" if parts else "")


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def _head(status: Status) -> Text:
    up, wanted = status["workers"]["up"], status["workers"]["high"] or len(status["tasks"])
    text = Text(status["name"] or "job", "bold")
    text.append(" · ").append(status["state"], _STYLES.get(status["state"], ""))
    if status["ended"] is None:
        text.append(f" · round {status['round']['number']} · {up} of {wanted} workers up")
    else:
        count = len(status["tasks"]) or wanted
        text.append(f" · {counted(count, 'worker')}")
    if status["restarts"]:
        text.append(f" · {counted(status['restarts'], 'restart')}")
    if status["ended"] is None and (waiting := _successors(status.get("successors") or {})):
        text.append(f" · {waiting}")
    if status["seconds"] is not None:
        text.append(f" · {duration(max(0, status['seconds']))}")
    return text


def _successors(found: Mapping[str, Any]) -> str:
    """Returns "1 successor starts, 1 is ready"."""
    starts, ready = found.get("starting", 0), found.get("ready", 0)
    if starts and ready:
        return f"{counted(starts, 'successor')} starting, {ready} ready"
    state = "starting" if starts else "ready"
    return f"{counted(starts or ready, 'successor')} {state}" if starts or ready else ""


def _bar(training: Mapping[str, Any]) -> RenderableType:
    epoch, epochs = training["epoch"] + 1, training["epochs"]
    step, steps = training["step_in_epoch"], training["steps_per_epoch"]
    where = f"epoch {epoch}/{epochs} " if epochs else f"epoch {epoch} "
    where += f"step {step}/{steps}" if steps else f"step {training['step']:,}"
    if training["done"] is None:
        return Text(where)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(max_width=BAR_WIDTH)
    grid.add_column(no_wrap=True)
    left = training["seconds_left"]
    more = f"{100 * training['done']:.0f} %"
    more += f", {duration(left)} left" if left and training["done"] < 1 else ""
    grid.add_row(Text(where), ProgressBar(total=1.0, completed=training["done"]), more)
    return grid


def _numbers(training: Mapping[str, Any], status: Status) -> Iterator[RenderableType]:
    logs = list(training["logs"].items())[:MOST_LOGS]
    shown = [f"{k} {v:.4g}" if isinstance(v, int | float) else f"{k} {v}" for k, v in logs]
    if shown:
        yield Text(" · ".join(shown))
    if training["samples_per_second"]:
        rate, count = training["samples_per_second"], max(1, status["workers"]["up"])
        each = f" ({rate / count:,.0f} a worker)" if count > 1 else ""
        yield Text(f"{rate:,.0f} samples/s{each}")
    if line := split_line(training):
        yield Text(line)


def _stragglers(status: Status) -> Iterator[str]:
    slow = [found for found in status["stragglers"] if found["until"] is None]
    for found in slow[:MOST_STRAGGLERS]:
        at = found["slow_at"] + (f" to {found['network_to']}" if found["network_to"] else "")
        yield f"{name_of(found['task'])} is slow ({at}): {found['factor']:.1f} times the others"
    if len(slow) > MOST_STRAGGLERS:
        yield f"… {len(slow) - MOST_STRAGGLERS} more are slow"


def _table(tasks: Sequence[Mapping[str, Any]], most: int, *, cuts: bool) -> Table:
    def stands_out(task: Mapping[str, Any]) -> tuple[bool, bool]:
        # Not by their times, which would shuffle the lines each time.
        return task["state"] == "running", not task["slow_at"]

    chosen = tasks if len(tasks) <= most else sorted(tasks, key=stands_out)[:most]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("worker", no_wrap=True)
    table.add_column("host")
    table.add_column("state")
    for name in ("step", "own", "memory", "CPU"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("slow at", no_wrap=True)
    for task in chosen:
        state = task["status"] or task["state"]
        memory = f"{task['rss_bytes'] / 2**20:,.0f} MiB" if task["rss_bytes"] else ""
        cpu = f"{100 * task['cpu_share']:.0f} %" if task["cpu_share"] is not None else ""
        times = [task["step_seconds"], task["own_seconds"]]
        shown = [milliseconds(s) if s is not None else "" for s in times]
        # A cell that is cut, in a column that may be narrower: the others keep their widths.
        how = "ellipsis" if cuts else "fold"
        texts = (Text(t, no_wrap=cuts, overflow=how) for t in (task["host"] or "", state))
        row = (name_of(task["task"]), *texts, *shown, memory, cpu)
        style = "red" if task["state"] in ("failed", "gone") else "yellow" * bool(task["slow_at"])
        table.add_row(*row, task["slow_at"] or "", style=style)
    if len(chosen) < len(tasks):
        table.add_row(f"… {len(tasks) - len(chosen)} more", style="dim")
    return table


def _event(event: Mapping[str, Any]) -> Text:
    when = time.strftime("%H:%M:%S", time.localtime(event["time"]))
    return Text(f"{when}  ", "dim").append(event["text"], _LEVELS.get(event["level"], ""))


def _failure(failure: Mapping[str, Any]) -> Iterator[Text]:
    yield Text(f"{failure['code']}: {failure['headline']}", "red bold")
    last = (failure.get("said") or failure["traceback"]).rstrip().splitlines()
    last = last if failure.get("said") else last[-1:]
    yield from (Text(line) for line in last)
    for name in ("likely", "fix"):
        if failure.get(name):
            yield Text(f"{'likely cause' if name == 'likely' else name}: {failure[name]}")
    if failure["others_text"]:
        yield Text(failure["others_text"])
    yield Text(f"log: {failure['log']}")
