"""`tfrun stacks [RUN]`: where the workers of a running job stand now, equal stacks folded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from tfrun.cli.find_run import about_run
from tfrun.observe.ask_job import ask
from tfrun.observe.step_reports import rank_order

_HEAD = re.compile(r"(?:Stack|(?:Current thread|Thread) 0x[0-9a-f]+.*) \(most recent call first\):")
_FRAME = re.compile(r'(  File ".*", line \d+) in ')

Stack = tuple[str, ...]  # lines as Python writes them in a traceback, the outermost call first


@about_run
@click.option(
    "--threads",
    is_flag=True,
    help="Show all threads, not only the main one. About once in 300 times this crashes a worker.",
)
def stacks(run_dir: Path, *, threads: bool) -> int:
    """Show where the workers of a running job are now; equal stacks are folded together."""
    answer = ask(run_dir, "/stacks", {"threads": threads}, seconds=15)
    print("\n".join(lines(fold(answer["stacks"], threads=threads))).rstrip())
    return 0


def read(text: str) -> list[Stack]:
    """Returns the stacks in what faulthandler has written; the main thread's first."""
    stacks: list[list[str]] = []
    for line in text.splitlines():
        if _HEAD.match(line):
            stacks.append([])
        elif stacks and _FRAME.match(line):
            stacks[-1].append(_FRAME.sub(r"\1, in ", line, count=1))
    # faulthandler begins with the newest thread, and with the newest call.
    return [tuple(reversed(stack)) for stack in reversed(stacks)]


def fold(texts: Mapping[str, str], *, threads: bool = False) -> list[tuple[list[str], list[Stack]]]:
    """Returns the different stacks, each with the tasks that have it; the rarest first.

    Args:
      texts: what each task has written; "" when it did not answer.
      threads: those of all threads, not the main thread's only.
    """
    groups: dict[tuple[Stack, ...], list[str]] = {}
    for task in sorted(texts, key=rank_order):
        stacks = read(texts[task])
        groups.setdefault(tuple(stacks if threads else stacks[:1]), []).append(task)
    # Who stands elsewhere than all the others is what one looks for.
    return sorted(((tasks, list(key)) for key, tasks in groups.items()), key=lambda g: len(g[0]))


def lines(groups: Sequence[tuple[list[str], list[Stack]]]) -> Iterator[str]:
    """Yields what a person reads of `fold`'s result, as Python writes a traceback."""
    for tasks, stacks in groups:
        yield f"{ranks(tasks)}:"
        if not stacks:
            yield "  (no answer: it is starting, stopped, or has ended)"
        for number, stack in enumerate(stacks):
            if number:
                yield "  -- another thread --"
            yield from stack
        yield ""


def ranks(tasks: Sequence[str]) -> str:
    """Returns "worker 0", or "worker 0-2, 5 (4 workers)" with neighbours drawn together."""
    by_role: dict[str, list[int]] = {}
    for task in tasks:
        role, _, index = task.partition(":")
        by_role.setdefault(role, []).append(int(index or 0))
    named = [f"{role} {', '.join(_runs(found))}" for role, found in by_role.items()]
    count = f" ({len(tasks)} workers)" if len(tasks) > 1 else ""
    return ", ".join(named) + count


def _runs(numbers: Sequence[int]) -> Iterator[str]:
    first = last = numbers[0]
    for number in [*numbers[1:], None]:
        if number is not None and number == last + 1:
            last = number
            continue
        yield str(first) if first == last else f"{first}-{last}"
        first = last = number if number is not None else last
