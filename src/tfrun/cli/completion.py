"""What shells ask, to complete words: click answers, and here is what it does not know."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from tfrun.job.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_TFRUN_COMPLETE"  # set by the shell, for click
SHELLS = ("bash", "zsh", "fish")


def check(asked: str) -> None:
    """Refuses what click would answer with no word.

    Args:
      asked: what the variable says, such as "bash_source".

    Raises:
      UsageError: TFRUN-105.
    """
    from click.shell_completion import get_completion_class

    shell, _, what = asked.partition("_")
    if get_completion_class(shell) is None or what not in ("source", "complete"):
        raise UsageError(
            "TFRUN-105",
            f"{asked!r:.60} is not a shell that tfrun completes words for",
            where=VARIABLE,
            expected=" or ".join(f"{known}_source" for known in SHELLS),
        )


def first_words(begun: str, verbs: Iterable[str]) -> list[CompletionItem]:
    """What a shell may complete where a script stands: a verb, or a file."""
    from click.shell_completion import CompletionItem

    found = [verb for verb in verbs if verb.startswith(begun)]
    if not found:
        return [CompletionItem(begun, type="file")]
    # Asked for files, bash forgets all other words: they are named here.
    there = sorted(p for p in Path().glob(f"{begun}*") if not p.name.startswith("."))
    files = (f"{path}/" if path.is_dir() else str(path) for path in there)
    return [CompletionItem(word) for word in (*found, *files)]


def verb_of(environment: MutableMapping[str, str], verbs: Iterable[str]) -> list[str]:
    """Returns the verb whose words the shell wants completed, and takes it out of these; or none.

    In the environment bash, zsh and fish tell click what stands on the command line.
    """
    import shlex

    from click.shell_completion import split_arg_string

    words = split_arg_string(environment.get("COMP_WORDS", ""))
    at = environment.get("COMP_CWORD", "")  # of fish it is the word itself
    is_begun = at == "1" if at.isdecimal() else words[1:] == [at]
    if is_begun or words[1:2] == [] or words[1] not in verbs:
        return []
    environment["COMP_WORDS"] = shlex.join([words[0], *words[2:]])
    if at.isdecimal():
        environment["COMP_CWORD"] = str(int(at) - 1)
    return [words[1]]
