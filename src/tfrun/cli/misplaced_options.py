"""Tells of an option that says how many workers or which hosts, but stands behind the script.

As with python's own options, the script gets it; somebody new to tfrun means tfrun, and would see
one worker train.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import click

# Of `tfrun`, `submit` and `render`, by their names in Python; and what a value looks like.
_NUMBER = r"[0-9]{1,9}"
_VALUES = {
    **dict.fromkeys(("nodes", "ps"), _NUMBER),
    "workers": rf"{_NUMBER}(:{_NUMBER})?",
    **dict.fromkeys(("hosts", "hostfile", "cluster"), r"[^-].*"),
}
_AS_IT_IS = {"workers": ("1", "1:1"), "nodes": ("1",)}  # that is how it runs
_DASHES = "misplaced options: dashes"


def note_dashes(context: click.Context, args: Sequence[str]) -> None:
    """Remembers whether `--` stands before SCRIPT: somebody knows whose the rest is.

    Args:
      context: which has parsed the words.
      args: all of them.
    """
    rest = len(context.params.get("script_args") or ()) + 1
    context.meta[_DASHES] = list(args[:-rest][-1:]) == ["--"]


def found(context: click.Context) -> str:
    """Returns what to tell of the script's first word that is such an option; "" of none.

    It is silent where `--` stands before the script or before that word, and where the command
    has been told the same thing.
    """
    if context.meta.get(_DASHES):
        return ""
    params = context.params
    misplaced = misplaced_words(params.get("script_args") or (), _unset(context))
    if not misplaced:
        return ""
    words, script = shlex.join(misplaced), params["script"]
    program = shlex.join(["-m", script] if params.get("module") else [script])
    return (
        f"`{words:.80}` stands behind the script, so {script:.80} gets it, and the job has 1 "
        f"worker. If it is meant for tfrun, write it first: "
        f"{context.command_path} {words:.80} {program:.80}"
    )


def misplaced_words(args: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Returns the first option with its value among a script's arguments; none where there is none.

    Args:
      args: of the script.
      options: by what stands on a command line ("-n"), the names in Python.
    """
    mine = args[: args.index("--")] if "--" in args else args
    for number, word in enumerate(mine):
        option, equals, value = word.partition("=")
        if option not in options or (equals and not option.startswith("--")):
            continue
        words = [word] if equals else list(mine[number : number + 2])
        value = value if equals else "".join(words[1:])
        name = options[option]
        if value not in _AS_IT_IS.get(name, ()) and re.fullmatch(_VALUES[name], value):
            return words
    return []


def _unset(context: click.Context) -> dict[str, str]:
    default = click.core.ParameterSource.DEFAULT
    return {
        word: str(param.name)
        for param in context.command.params
        if param.name in _VALUES and context.get_parameter_source(str(param.name)) is default
        for word in param.opts
    }
