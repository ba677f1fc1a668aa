"""What the options of several commands share: click's settings, and types of numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from tfrun.cli import misplaced_options
from tfrun.job.errors import UsageError
from tfrun.storage.url import is_url, lacks_slash, normal

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

MOST = 1e9  # in seconds thirty years; clocks overflow far beyond


def context(verb: str = "", *, script: bool = False) -> dict[str, Any]:
    """Returns a command's settings for click: its options are variables as well.

    The `verb` "" is `tfrun` itself. Of a command with a `script`, what stands behind that is the
    script's.
    """
    return {
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": f"TFRUN_{verb.upper()}" if verb else "TFRUN",
        "allow_interspersed_args": not script,
        "show_default": True,
    }


class Whole(click.IntRange):
    """A whole number within a range; click's own says "INTEGER RANGE", also in its errors."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "N"


class Number(click.FloatRange):
    """A number within a range; click's own ranges let nan and inf through."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number) or number > MOST:
            self.fail(f"{number} is not a number up to {MOST:,.0f}.", param, ctx)
        return number


class Directory(click.ParamType):
    """A path of this machine's; what names a place of a cloud would become a directory "gs:"."""

    name = "directory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if is_url(value) or lacks_slash(value):
            self.fail(
                f"{value!r:.200} is not a path in a file system: mount it, and give its path.",
                param,
                ctx,
            )
        return value


class CheckpointDirectory(Directory):
    """A path, or the URL of a place in object storage."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return normal(value, where="--checkpoint-dir")


def files(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Has a shell offer the files that begin so."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="file")]


def directories(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Has a shell offer the directories that begin so."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="dir")]


class ScriptCommand(click.Command):
    """A command that runs a script: what stands behind SCRIPT is none of its own options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        stated = list(args)  # click takes them out
        rest = super().parse_args(ctx, args)
        misplaced_options.note_dashes(ctx, stated)
        return rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if ctx.params.get("script"):
            return files(ctx, self.params[-1], incomplete)
        return super().shell_complete(ctx, incomplete)


FILE: dict[str, Any] = {"metavar": "FILE", "shell_complete": files}
DIRECTORY: dict[str, Any] = {
    "type": Directory(),
    "metavar": "DIR",
    "shell_complete": directories,
}
CHECKPOINTS: dict[str, Any] = {
    "type": CheckpointDirectory(),
    "metavar": "DIR",
    "shell_complete": directories,
}
SCRIPT_ARGUMENTS: dict[str, Any] = {
    "nargs": -1,
    "type": click.UNPROCESSED,
    "metavar": "[ARGS]...",
    "shell_complete": files,
}
SECONDS: dict[str, Any] = {"type": Number(min=0, min_open=True), "metavar": "SECONDS"}


def numbers_of_workers(text: str, *, where: str, least: int = 1) -> tuple[int, ...]:
    """Reads "1,2,4", with `least` different numbers.

    Raises:
      UsageError: TFRUN-105 where it is no list of so many.
    """
    words = text.split(",")
    if all(word.isascii() and word.isdecimal() and len(word) < 6 for word in words):
        found = tuple(dict.fromkeys(int(word) for word in words))
        if len(found) >= least and min(found) > 0:
            return found
    expected = "numbers from 1, such as 1,2,4" if least < 2 else "at least two, such as 1,2,4"
    what = f"{text!r:.60} is not a list of numbers of workers"
    raise UsageError("TFRUN-105", what, where=where, expected=expected)
