"""Knows the variables that state a job, and names those that only look as if they did."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Iterator

import click

from tfrun.cluster import pods
from tfrun.job import settings

PREFIX = "TFRUN_"
# What tfrun gives its own processes, and what is no option.
_OWN = {
    *(settings.VARIABLE, settings.ROUND, settings.STATE_DIR, *settings.WITHOUT_OPTION),
    *(pods.HEALTH_PORT, pods.HOSTS, pods.INDEX, pods.PORT, pods.SLOTS, pods.TOKEN_FILE),
    pods.ADDRESS,
}
# Of image builders, of our own tests, and of Kubernetes for a Service of the name "tfrun".
_OTHERS = re.compile(r"TFRUN_(VERSION|HELP|(HOST_)?TESTS?(_.*)?|PORT(_.*)?|SERVICE_.*)")


def unknown(names: Iterable[str], run: click.Command, verbs: Iterable[str]) -> Iterator[str]:
    """Yields a sentence for each variable that has no effect because it is no option's.

    `verbs` have options of their own, `TFRUN_<VERB>_…`.
    """
    known = _variables(run, PREFIX) | _OWN
    for name in sorted(names):
        if not name.startswith(PREFIX) or name in known or _OTHERS.fullmatch(name):
            continue
        words = name.removeprefix(PREFIX).lower().split("_")
        there = known
        if words[0] in verbs and len(words) > 1:
            there = _of_verb(words[0]) | known
            if name in there:
                continue
        rests = [other.removeprefix(PREFIX) for other in sorted(there - _OWN)]
        near = difflib.get_close_matches(name.removeprefix(PREFIX), rests, n=1, cutoff=0.7)
        more = f"; did you mean {PREFIX}{near[0]}?" if near else ""
        yield f"the variable {name:.80} has no effect: tfrun has no such option{more}"


def of_a_job(names: Iterable[str], run: click.Command, verbs: Iterable[str]) -> set[str]:
    """Returns those that state something for a job: its scripts' own jobs are not meant.

    One of the `verbs`, with options of its own, may have started it.
    """
    known = _variables(run, PREFIX) | settings.WITHOUT_OPTION
    of_verbs = tuple(f"{PREFIX}{verb.upper()}_" for verb in verbs)
    return {name for name in names if name in known or name.startswith(of_verbs)}


def _of_verb(verb: str) -> set[str]:
    command = getattr(importlib.import_module(f"tfrun.cli.{verb}"), verb)
    commands = command.commands.values() if isinstance(command, click.Group) else [command]
    return {name for one in commands for name in _variables(one, f"{PREFIX}{verb.upper()}_")}


def _variables(command: click.Command, prefix: str) -> set[str]:
    return {str(p.envvar or f"{prefix}{str(p.name).upper()}") for p in _options(command)}


def _options(command: click.Command) -> list[click.Parameter]:
    found = [param for param in command.params if isinstance(param, click.Option)]
    return [param for param in found if param.expose_value]  # not --version, whose variable is none
