"""A call that not every worker makes, so that some wait in vain: its error, and how to spot it.

A collective needs every worker. One whose script has ended comes to none any more, and one that
waits in another collective does not come to this one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from tfrun.job.errors import TfrunError

CODE = "TFRUN-406"
UNNAMED = "another one is in another collective"  # all that TensorFlow says
PARTED = "parted"  # what an agent says to workers that wait in different collectives
ENDED = "ended"  # what an agent says to a worker whose peers have come to their end
# What a script calls that needs every worker; a collective's stamp has the position.
CALLS = (
    "a collective",
    "model.fit",
    "model.evaluate",
    "model.predict",
    "model.train_on_batch",
    "model.test_on_batch",
    "model.predict_on_batch",
    "strategy.run",
    "strategy.reduce",
    "strategy.gather",
)
# TensorFlow's own words: two workers have met in what is not the same collective.
_MISMATCH = re.compile(r"Collective instance \d+ expected|[Mm]ismatch in the collective instance")
_MARKED = re.compile(rf"{CODE}: ([^\]\n]+)")  # TensorFlow goes on with one of these


def marked(reason: str) -> str:
    """A reason as it is given to a collective."""
    return f"{CODE}: {reason}"


def reason_in(message: str) -> str | None:
    """The reason in an exception's message; None when it came of something else."""
    found = _MARKED.search(message)
    if found is None and _MISMATCH.search(message):
        return UNNAMED
    return found[1] if found else None


def ended(tasks: Collection[str]) -> str:
    """Says whose scripts have come to their end, by tasks' names such as "worker:1"."""
    names = [_name(task) for task in sorted(tasks)]
    if len(names) == 1:
        return f"{names[0]} does not come, because its script has ended"
    return f"{', '.join(names[:-1])} and {names[-1]} do not come, because their scripts have ended"


def stands(call: int, line: int) -> str:
    """Says where a worker is.

    `call` is a position in `CALLS`; line 0 of the script is not known.
    """
    return f"in {CALLS[call % len(CALLS)]}" + (f" (line {line})" if line else "")


def parted(places: Mapping[str, str], mine: str) -> str:
    """Says where all workers are.

    `places` has them by tasks' names such as "worker:1"; `mine` is the one who says so.
    """
    others = [f"{_name(task)} is {places[task]}" for task in sorted(places) if task != mine]
    return f"{', '.join(others)}, and this one {places[mine]}"


def _name(task: str) -> str:
    return task.replace(":", " ")


def error(call: str, reason: str, where: str) -> TfrunError:
    """What a script gets to see.

    It has called `call`, "model.evaluate", which would never end for a `reason`.
    """
    return TfrunError(
        CODE,
        f"{call} needs every worker: {reason}",
        where=where,
        expected="all workers to make the same calls in the same order",
        fix="Call it on every worker, not below `if rank == 0:`: each gets the same result. What "
        "only one worker should do during fit belongs in a callback in tfrun.ChiefOnly(…)",
    )
