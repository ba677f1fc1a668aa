"""Takes a worker's process into the job's next round: it keeps its model, and what it has traced.

A peer has gone, or others come. This worker tells that it stays, is given its place in the next
round, and connects with the workers of that; all go on from the state of the one that is furthest.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfrun.collective import stamps
from tfrun.collective.collective import keep_memory
from tfrun.data.ledger import writer as ledger
from tfrun.engine import compression, host_collective, place_resolver
from tfrun.job import holding, replicas, world
from tfrun.job.first_failure import is_peer_error
from tfrun.job.settings import VARIABLE, settings
from tfrun.process import progress
from tfrun.process.files import install as files
from tfrun.state import durable_checkpoints, leave_round, share_snapshot
from tfrun.state.share_snapshot import Apart, Stand, UnfitSuccessor
from tfrun.state.snapshot import Place, Snapshot

MANY = 8  # rounds, after which what they have left is let go in the midst of an epoch
entered = 0  # rounds, since that was done; a step asks for it
_when_moved: list[Callable[[], None]] = []


def when_moved(action: Callable[[], None]) -> None:
    """Has something called when this worker has got its place in another round.

    All of that round's workers are in one call of the script then, or come to it.
    """
    _when_moved.append(action)


def let_go(*, epoch_ended: bool) -> None:
    """Between two steps: frees what earlier rounds have left, as the iterators of their data.

    Those have threads and batches. They are in cycles of references, which Python looks for the
    more rarely, the more objects a model is.
    """
    global entered
    if entered >= (1 if epoch_ended else MANY):
        entered = 0
        gc.collect()


def enter(
    strategy: Any,
    stand: Stand,
    mine: Snapshot | None,
    whole: Callable[[], Snapshot],
    step: int,
    keep: Callable[[], None],
) -> Snapshot | None:
    """Waits for the next round and connects with its workers.

    Args:
      strategy: that of the training.
      stand: how far it is.
      mine: what the variables do not hold of its state; None where it has none.
      whole: all of its state.
      step: of the training, in all.
      keep: writes the state to the machine's memory.

    Returns:
      The state to go on from: variables that it lacks hold it already. None where nobody has any.

    Raises:
      Apart: the others are elsewhere in the script, or all are apart.
    """
    if not stand.stayed and (calls := host_collective.calls_of(strategy)) is not None:
        keep_memory(calls.largest)
    place = mine.place if mine else Place(call=stand.call)
    while True:
        _move(leave_round.wait_for_round(place, step, keep))
        try:
            with progress.pausing(), _in_no_call():
                cluster = place_resolver.resolver()
                host_collective.rejoin(strategy, cluster, compression.wanted())
                state, waiting = share_snapshot.level(strategy, stand, mine, whole)
                _keep_held(strategy, waiting)
                return state
        except UnfitSuccessor:  # it leaves, and the others go on without
            if not stand.stayed:
                raise Apart from None
        except tf.errors.OpError as error:  # another one has gone meanwhile
            if not is_peer_error(type(error).__name__, str(error)):
                raise


def _keep_held(strategy: Any, waiting: Sequence[range]) -> None:
    """Has each worker hold those replicas that wait in a step, where all can.

    Args:
      strategy: that has been connected anew.
      waiting: by rank.
    """
    calls: Any = host_collective.calls_of(strategy)
    division = replicas.held(calls.turns.total, calls.group.world, tuple(waiting))
    if any(waiting) and division:
        holding.move([len(block) for block in division])
        calls.group.hold(division)
        calls.turns.hold(division[calls.group.rank])


@contextlib.contextmanager
def _in_no_call() -> Iterator[None]:
    """While it lasts, workers may be in different calls of the script: they are about to ask."""
    before = stamps.stand(stamps.ScriptPlace())
    try:
        yield
    finally:
        stamps.stand(before)


def _move(said: str) -> None:
    """Takes the place in the next round that the agent has told."""
    global entered
    entered += 1
    environment = json.loads(said)["environment"]
    was_chief = world.world().is_chief
    world.move(environment)
    os.environ[VARIABLE] = environment[VARIABLE]
    settings.cache_clear()
    holding.begin_anew()
    ledger.round_is_over()
    files.moved()
    if world.world().is_chief != was_chief:
        durable_checkpoints.forget()
    for action in _when_moved:
        action()
