"""Reads JSON objects strictly: repeated and misspelt keys are errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class Object(dict):
    """A JSON object that remembers a key that was written twice; JSON keeps the last in silence."""

    repeated: str | None = None


def keep_repeated(pairs: list[tuple[str, Any]]) -> Object:
    found = Object(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        found.repeated = next(key for key in keys if keys.count(key) > 1)
    return found


def near_miss(word: str, candidates: Iterable[str]) -> str | None:
    """Returns the candidate that `word` was probably meant to be, or None."""
    lowered = {candidate.lower().strip(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word, lowered, n=1, cutoff=0.7)
    return lowered[close[0]] if close else None
