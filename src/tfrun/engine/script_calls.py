"""The script's calls that need every worker: which one runs, and its error when others do not come.

What waits there in vain fails by an error of TensorFlow's or of the host collective's; the script
gets to see one that names the call. What needs no other worker goes on.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator

from tfrun.collective import stamps
from tfrun.engine import host_collective, tensorflow_collectives
from tfrun.engine.script_lines import named, script_frame, where
from tfrun.job import unmatched_call
from tfrun.job.errors import TfrunError
from tfrun.job.settings import settings
from tfrun.process import channel

_standing: list[str] = []  # where the calls are that run: their replicas may have their own threads


@contextlib.contextmanager
def calling(call: str) -> Iterator[None]:
    """While it lasts the script is in a call that needs every worker.

    Args:
      call: one of `unmatched_call.CALLS`.

    Raises:
      TfrunError: TFRUN-406, instead of the error that a worker gets which waits in vain.
    """
    frame = script_frame(sys._getframe(1))
    number, line = unmatched_call.CALLS.index(call), frame.f_lineno if frame else 0
    # A step that one calls in `strategy.run`, another one may call in a `tf.function`.
    own = None if call == "strategy.run" else number
    before = stamps.stand(stamps.ScriptPlace())
    stamps.stand(
        stamps.ScriptPlace(phase=before.phase if own is None else own, call=number, line=line)
    )
    _standing.append(named(frame, line))
    try:
        yield
    except Exception as error:
        reason = None if isinstance(error, TfrunError) else unmatched_call.reason_in(str(error))
        if reason is None:
            raise
        raise unmatched_call.error(call, _whole(reason, number, line), _standing[-1]) from None
    finally:
        _standing.pop()
        stamps.stand(before)


def here() -> str:
    """File and line of the script's innermost call; "" when it is none of its."""
    frame = script_frame(sys._getframe(1))
    return named(frame, frame.f_lineno) if frame else _standing[-1] if _standing else ""


def explained(error: BaseException) -> BaseException:
    """What a person gets to see of an error that has ended the script: itself, or a clear one."""
    reason = None if isinstance(error, TfrunError) else unmatched_call.reason_in(str(error))
    if reason is None:
        return error
    place = where(error)
    line = place.rpartition(":")[2]
    reason = _whole(reason, 0, int(line) if line.isdecimal() else 0)
    clear = unmatched_call.error(unmatched_call.CALLS[0], reason, place)
    clear.__cause__ = error
    return clear


def _whole(reason: str, call: int, line: int) -> str:
    """A reason that names all workers, where TensorFlow has named none."""
    if reason != unmatched_call.UNNAMED:
        return reason
    return tensorflow_collectives.places_of_all(unmatched_call.stands(call, line)) or reason


def listen() -> None:
    """Has this worker's collectives fail when it is told that the others do not come.

    They would wait for ever. The host collective's fail at once, because its calls are counted;
    TensorFlow's own after a while, in which the last one that all have made is over.
    """
    channel.when(unmatched_call.ENDED, _hear)
    channel.when(unmatched_call.PARTED, _hear_places)


def last_collective() -> int | None:
    """The number of this worker's last host collective; None when it has met nobody."""
    group = host_collective.current()
    if group is not None:
        return group.counts.collectives
    return 0 if tensorflow_collectives.in_use() else None


def _hear_places() -> None:
    places = json.loads(channel.text_of(unmatched_call.PARTED))
    if group := host_collective.current():
        group.end(unmatched_call.marked(unmatched_call.parted(places, settings().task)))


def _hear() -> None:
    tasks = json.loads(channel.text_of(unmatched_call.ENDED))
    reason = unmatched_call.marked(unmatched_call.ended(tasks))
    if group := host_collective.current():
        group.end_after(min(last or 0 for last in tasks.values()), reason)
    if tensorflow_collectives.in_use():
        tensorflow_collectives.abort_soon(reason)
