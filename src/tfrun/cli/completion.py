"""Completes commands in the shell: verbs where a script may stand, then the verb's options."""

from __future__ import annotations

import shlex
from collections.abc import Collection, MutableMapping

from click.shell_completion import CompletionItem, split_arg_string


def first_words(verbs: Collection[str], begun: str) -> list[CompletionItem]:
    """Returns what may stand in the script's place: a verb, or a file."""
    found = [CompletionItem(verb) for verb in verbs if verb.startswith(begun)]
    return [*found, CompletionItem(begun, type="file")]


def verb_of(environment: MutableMapping[str, str], verbs: Collection[str]) -> list[str]:
    """Returns the verb whose words the shell wants completed, and takes it out of these; or none.

    Args:
      environment: where bash, zsh and fish tell click what stands on the command line.
      verbs: all verbs.
    """
    words = split_arg_string(environment.get("COMP_WORDS", ""))
    at = environment.get("COMP_CWORD", "")  # of fish it is the word itself
    is_begun = at == "1" if at.isdecimal() else words[1:] == [at]
    if is_begun or words[1:2] == [] or words[1] not in verbs:
        return []
    environment["COMP_WORDS"] = shlex.join([words[0], *words[2:]])
    if at.isdecimal():
        environment["COMP_CWORD"] = str(int(at) - 1)
    return [words[1]]
