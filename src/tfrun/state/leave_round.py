"""Leaves a round: the worker keeps its state when the agent says that a peer has gone.

A worker that waits in a collective learns of a peer's death by itself, but one that comes to the
next collective later learns of it there, and with TensorFlow's own only after seconds. So the agent
tells all at once: what is in a collective fails now, and who has no state to keep ends now. Who
comes to no collective soon, because it validates, traces, waits for data or is in a callback, has
another thread keep its state. The same thread keeps that of a worker which stands still, before
its agent ends it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfrun.engine import cut_short, host_collective
from tfrun.job import reports
from tfrun.job.settings import settings
from tfrun.job.world import why_not_stay
from tfrun.process import channel, progress
from tfrun.process.peers_left import PeersLeft
from tfrun.state import leaving, save_on_preemption, snapshot
from tfrun.state.leaving import Deed, Heard, Stand
from tfrun.state.snapshot import Place

ROUND = "round"  # what an agent says to one that stays: its place in the next round
GO_SECONDS = 1.0
REST_SECONDS = 2.0  # so long the training's own thread has to notice by itself
# And so long where it then stays, whatever it does; while it computes; while it traces.
STAY_SECONDS, COMPUTES_SECONDS, TRACES_SECONDS = 9.0, 60.0, 600.0
LOOK_SECONDS = 0.5  # from look to look at where it stands
LOOKS = 4  # at a worker that is about to be ended
_WAITED_FOR = "a worker has gone; this one finishes what it is computing, and goes on then"

_keeping = 0  # calls of `fit` that catch what ends them
# Of loops of the script's own, where only its end catches their errors: what keeps the state of
# one that a peer's end has cut off, and what ends one.
_kept_by: list[Callable[[], None]] = []  # keeps the state of one that waits for the next round
_open: dict[Callable[[], None], Callable[[], None]] = {}
_stays = False  # it can go on in another round, in a training or on its way to the next one
_stand, _standing = Stand.TRAINS, threading.Lock()
_keeps = threading.Event()  # of this round: the training's own thread keeps the state
_placed = threading.Event()  # it has been given its place in the next round
_regroup_wanted = False


def listen() -> None:
    """Has this worker leave when it is told to."""
    channel.when("leave", _leave)
    channel.when("regroup", _regroup)
    channel.when("keep", _keep_before_the_end)
    channel.when(ROUND, _take_place)


def say_resumed(place: Place, step: int) -> None:
    """Tells that this worker stands where the script's earlier run was cut off, `step` steps in.

    What it prints is shown from then on, so it waits for the answer.
    """
    channel.emit(reports.Resumed(key=list(place), step=step))
    channel.wait_for("go", GO_SECONDS)


def say_stepped(place: tuple[int, int, int], step: int, made: int) -> None:
    """Tells that this worker has made the first `made` steps of a training; `step` in all."""
    channel.emit(reports.FirstStep(key=list(place), step=step, made=made))


def leave_to_regroup(keep: Callable[[], None]) -> None:
    """Called between two steps: ends the script where there could be more workers.

    The first worker that comes here leaves; its peers then lose sight of it in their next step,
    which nobody can do without it. So nothing has to be agreed on, and no step is lost.

    Raises:
      PeersLeft: the script is run again from the top.
    """
    if _regroup_wanted:
        keep()
        error = tf.errors.UnavailableError(None, None, "the job goes on with more workers")
        raise PeersLeft from error


def _regroup() -> None:
    global _regroup_wanted
    _regroup_wanted = True


@contextlib.contextmanager
def keeping_state() -> Iterator[None]:
    """While it lasts a collective's failure leads to a snapshot, which is waited for."""
    global _keeping
    _keeping += 1
    try:
        yield
    finally:
        _keeping -= 1


def opened(keep: Callable[[], None], close: Callable[[], None]) -> None:
    """From now on until `closed` a peer's end leads to a snapshot of a loop, by `keep`."""
    _open[keep] = close


def closed(keep: Callable[[], None]) -> None:
    """There is nothing to keep of it any more."""
    _open.pop(keep, None)


def keeping() -> None:
    """The training's own thread has noticed, and keeps the state."""
    _keeps.set()


def keeps() -> bool:
    """Whether this worker is in a training, a `fit` or a loop, which keeps its state."""
    return _keeping > 0 or bool(_open)


def nothing_to_keep() -> None:
    """Of a worker that is in no training: what earlier ones have left is kept already."""


def can_stay(*, can: bool) -> None:
    """Says whether this worker can go on in another round, in this training or the next."""
    global _stays
    _stays = can


def _may_stay() -> bool:
    return _stays and not why_not_stay()


def leave_if_told() -> None:
    """Called where a training waits for nobody: ends it when a peer has gone.

    Raises:
      UnavailableError: it has.
    """
    if _stand is Stand.TOLD:
        raise tf.errors.UnavailableError(None, None, "a peer has left the round")


def keep_state() -> bool:
    """Called when a peer's end has ended the script; False when it has no training open."""
    for keep in _open:
        keep()
    return bool(_open)


def script_ended() -> None:
    """Called when the script has come to its end: what is open is over."""
    can_stay(can=False)
    were_open = list(_open.values())
    for close in were_open:
        close()
    if were_open and _stand is Stand.TOLD and not (_keeping or _open):
        _leave()  # now that nothing is lost by it


def wait_for_round(place: Place, step: int, keep: Callable[[], None]) -> str:
    """Tells that this worker stays, and waits until it is given its place in the next round.

    Told to leave a second time, it keeps its state as any other that leaves, and ends.

    Args:
      place: where the state stands that it holds.
      step: of the training, in all.
      keep: writes the state to the machine's memory.

    Returns:
      Its place, as the agent says it.
    """
    _placed.clear()
    _kept_by[:] = [keep]
    _hear(Heard.STAYS)
    _keeps.set()
    rehearsed = settings().rehearses
    channel.emit(reports.Ready() if rehearsed else reports.Stayed(key=list(place), step=step))
    _placed.wait()
    return channel.text_of(ROUND)


def _hear(heard: Heard) -> Deed:
    """Returns what is to be done; the training's thread asks, and the channel's."""
    global _stand
    with _standing:
        _stand, deed = leaving.after(_stand, heard)
    return deed


def _take_place() -> None:
    """In the channel's own thread: what is heard after it is of the next round."""
    global _keeps, _regroup_wanted
    _regroup_wanted = False
    _keeps = threading.Event()  # who looks at the round before goes on to see its own set
    host_collective.begin_anew()
    cut_short.open_again()
    _hear(Heard.PLACED)
    _placed.set()


def _leave() -> None:
    match _hear(Heard.LEAVE):
        case Deed.KEEP_AND_END:
            for keep in _kept_by:
                keep()
            _end()
        case Deed.LEAVE if _keeping or _open or _may_stay():
            name, keeps = "tfrun leaving", _keeps
            threading.Thread(target=_leave_at_rest, args=(keeps,), name=name, daemon=True).start()
            abort_collectives()
        case Deed.LEAVE:
            _end()


def _leave_at_rest(keeps: threading.Event) -> None:
    """Keeps the state and leaves, where the training's own thread does not come to it."""
    began, is_kept, is_told = time.monotonic(), False, False
    processor = progress.Processor()
    while not keeps.wait(LOOK_SECONDS):
        is_busy = processor.was_used()
        waited, mine = processor.asked - began, progress.own() if _may_stay() else None
        comes = mine is not None and _comes(mine, waited, is_busy=is_busy)
        if comes:
            channel.emit(reports.Comes())
            if waited > STAY_SECONDS and not is_told:
                is_told = True
                channel.emit(reports.WorkerNotice(text=_WAITED_FOR))
            if waited < REST_SECONDS or (mine is not None and mine.is_in_usual_step()):
                continue  # it comes to a sum, which fails, and stays
        # Sooner than it leaves: who has kept an earlier step may end those who are slow.
        is_kept = is_kept or _keep_aside()
        if is_kept and not comes and waited >= REST_SECONDS and not keeps.is_set():
            _end()


def _comes(mine: progress.Progress, waited: float, *, is_busy: bool) -> bool:
    """Whether the training's own thread will notice by itself, as far as another one can tell.

    Args:
      mine: what this worker shows.
      waited: seconds since it was told to leave.
      is_busy: it has used the processor since the last look.
    """
    if mine.is_in_usual_step() or waited < STAY_SECONDS:
        return True
    return is_busy and waited < (TRACES_SECONDS if mine.is_tracing else COMPUTES_SECONDS)


def _keep_aside() -> bool:
    """Keeps the state of a training that does not move; False when it does, or may."""
    try:
        kept, folder = save_on_preemption.state_at_rest(), settings().state_path
    except save_on_preemption.Moving:
        return False
    except RuntimeError:  # what a callback remembers has changed while it was looked at
        return False
    if kept is not None and folder is not None and settings().recovers:
        snapshot.write_and_tell(folder, kept)
    return True


def _keep_before_the_end() -> None:
    threading.Thread(target=_keep_and_tell, name="tfrun keeping", daemon=True).start()


def _keep_and_tell() -> None:
    looks = 0
    while not _keep_aside() and (looks := looks + 1) < LOOKS:
        time.sleep(LOOK_SECONDS)
    channel.emit(reports.Kept())


def _end() -> None:
    channel.emit(reports.Error(type="UnavailableError", message="a peer has left", traceback=""))
    os._exit(1)


def abort_collectives() -> None:
    """Makes this process's collectives fail, those that run and all that follow.

    tensorflow/python/eager/context.py; MultiWorkerMirroredStrategy's own health check does the
    same when it finds a peer dead. There is no public name for it.
    """
    from tensorflow.python.eager import context

    cut_short.shut()
    if host_collective.abort("a peer has left the round"):
        return  # TensorFlow's own are not used, and stay aborted
    here: Any = context.context()
    here.abort_collective_ops(
        tf.errors.UNAVAILABLE, "Collective ops is aborted by: a peer has left the round"
    )
