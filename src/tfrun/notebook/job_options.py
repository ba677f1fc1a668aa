"""Writes the options of `tfrun.launch` as those of the command line, and has them checked there."""

from __future__ import annotations

import difflib
import numbers
import os
from collections.abc import Iterator, Mapping
from typing import Any

import click

from tfrun.cli.main import options_of, run
from tfrun.cli.options import Options
from tfrun.job.errors import UsageError

WHERE = "tfrun.launch"
# What has no meaning for a function, and why.
_REFUSED = {
    "module": "a function is not a module",
    "sync": "what the function returns comes back through a directory that all machines share",
    "cluster": "the machines of a cluster file start their own tasks",
}


def arguments(options: Mapping[str, Any]) -> list[str]:
    """Returns the words of a command line.

    Args:
      options: values by the options' names in Python, such as `max_restarts`. None is the default.

    Raises:
      UsageError: TFRUN-105 where there is no such option, or a value is none of an option; 107 for
        an option that a function has not.
    """
    known = {str(p.name): p for p in run.params if isinstance(p, click.Option) and p.expose_value}
    words: list[str] = []
    for name, value in options.items():
        if (option := known.get(name)) is None:
            near = difflib.get_close_matches(name, known, n=1)
            fix = f"Perhaps {near[0]} is meant. " if near else ""
            fix += "Arguments of the function belong in args or kwargs"
            raise _wrong(f"there is no option {name!r:.60}", fix=fix)
        if value is not None and value is not False and name in _REFUSED:
            what = f"{name} has no effect: {_REFUSED[name]}"
            raise UsageError("TFRUN-107", what, where=WHERE, fix="Leave it out")
        words += _words(name, option, value)
    return words


def unset(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables without those of flags that are stated to be off.

    A command line cannot say that: it can only leave the flag out.
    """
    off = {f"TFRUN_{name.upper()}" for name, value in options.items() if value is False}
    return {name: value for name, value in environment.items() if name not in off}


def checked(words: list[str], script: str) -> Options:
    """Returns what a command line says.

    Raises:
      UsageError: TFRUN-103, 105 or 108, as the command would.
    """
    try:
        with run.make_context(WHERE, [*words, "--", script]) as context:
            return options_of(context, context.params)
    except click.ClickException as error:
        raise _wrong(" ".join(error.format_message().split()).removesuffix(".")) from None
    except UsageError as error:
        where = _name_of(error.where) or error.where
        told = {"where": where, "expected": error.expected, "fix": error.fix}
        raise UsageError(error.code, error.what, **told) from None


def _name_of(option: str) -> str:
    """The name in Python of an option of the command line, such as "-n"; "" of anything else."""
    return next((str(param.name) for param in run.params if option in param.opts), "")


def _words(name: str, option: click.Option, value: Any) -> Iterator[str]:
    if value is None:
        return
    if option.is_flag:
        if not isinstance(value, bool):
            raise _wrong(f"{name} is {value!r:.60}", expected="True or False")
        if value or option.secondary_opts:
            yield (option.opts if value else option.secondary_opts)[-1]
        return
    is_list = isinstance(value, list | tuple)
    if name == "hosts" and is_list and all(isinstance(host, str) for host in value):
        is_list, value = False, ",".join(value)
    many = option.multiple and is_list
    for each in value if many else [value]:
        # numbers.Real: NumPy's are, too.
        if isinstance(each, bool) or not isinstance(each, str | numbers.Real | os.PathLike):
            raise _wrong(f"{name} is {each!r:.60}", expected="a string or a number")
        yield from (
            option.opts[-1],
            os.fspath(each) if isinstance(each, os.PathLike) else str(each),
        )


def _wrong(what: str, *, expected: str = "", fix: str = "") -> UsageError:
    return UsageError("TFRUN-105", what, where=WHERE, expected=expected, fix=fix)
