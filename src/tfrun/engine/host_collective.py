"""Lets TensorFlow's strategies reduce, gather and broadcast through the host collective.

`CrossDeviceOps` is where TensorFlow lets others do the work: what `fit`, custom loops, `reduce`,
`gather` and metrics do ends there. Calls to Python in the graph take their place, see
host_collective_ops.py.

There is no cluster of TensorFlow's in this world: no server, no coordination service. Each worker
listens at its own address of TF_CONFIG; that its port accepts connections tells a silent peer from
one that has gone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import cross_device_ops, distribute_utils
from tensorflow.python.distribute import values as distributed_values

from tfrun.cluster.address import parse_address
from tfrun.collective import handshake
from tfrun.collective.collective import SMALL_BYTES, Collective
from tfrun.collective.counts import Gradients
from tfrun.collective.errors import Disagreement, PeerGone
from tfrun.collective.form_collective import form
from tfrun.collective.key_value_store import RemoteStore, Store
from tfrun.collective.links import Patience
from tfrun.collective.peer_listener import PeerListener
from tfrun.engine import travelling_results
from tfrun.engine.balance import Balance
from tfrun.engine.calls_in_turn import CallsInTurn
from tfrun.engine.host_collective_ops import Calls, Empty, Sum, as_tensorflow_fails
from tfrun.engine.overlap import pays as overlap_pays
from tfrun.engine.turns import Turns
from tfrun.job import holding, replicas, reports
from tfrun.job.errors import UsageError
from tfrun.job.settings import settings
from tfrun.job.world import fixed_replicas, may_stay, world
from tfrun.process import channel

ALIVE_SECONDS, ANSWER_SECONDS = 2.0, 10.0
# For the other scripts to come to their strategy. An agent ends who waits longer than the job's
# --join-timeout; where there is none, TensorFlow's own cluster would wait as long.
COME_SECONDS = 3600.0
_calls: Calls | None = None
_store: Store | RemoteStore | None = None
_listener: PeerListener | None = None
_ended = ""  # why nothing of this round counts any more
_when_it_waits: list[Callable[[], None]] = []


def current() -> Collective | None:
    """This process's collective, once a strategy uses it."""
    return (_calls.joins or _calls.group) if _calls else None


def store() -> Store | RemoteStore | None:
    """The strings that this round's workers share, once a strategy uses the host collective."""
    return _store


def abort(reason: str) -> bool:
    """Makes this round's collectives fail, also while they are being formed; from any thread.

    False where there is nothing of them.
    """
    global _ended
    _ended = reason
    if _listener is not None:
        _listener.abort(reason)
    if group := current():
        group.abort(reason)
    return not (_listener is None and group is None)


def begin_anew() -> None:
    """What is ended from now on is of another round, whose workers `rejoin` connects with."""
    global _ended
    _ended = ""


def calls_of(strategy: Any) -> Calls | None:
    """Those of a strategy whose workers talk through the host collective; None of another one."""
    return getattr(strategy.extended, "_host_calls", None)


def when_it_waits(action: Callable[[], None]) -> None:
    """Has something called when this worker has waited in a collective for some seconds."""
    _when_it_waits.append(action)


def adopt(strategy: Any, compress: str) -> None:
    """Has a multi-worker strategy use the host collective; all workers must call this.

    Args:
      strategy: whose workers have one device each.
      compress: as what gradients travel, see `form`.

    Raises:
      tf.errors.UnavailableError: a peer has gone meanwhile.
      UsageError: TFRUN-107, when another worker has other settings.
    """
    global _calls
    extended = strategy.extended
    try:
        # One for the process: what two strategies do has to keep one order.
        _calls = _calls or _made(_connect(extended, compress))
    except PeerGone as error:
        raise tf.errors.UnavailableError(None, None, str(error)) from None
    except Disagreement as error:
        fix = "Give all of them the same value"
        raise UsageError("TFRUN-107", str(error), where="their environments", fix=fix) from None
    extended._host_calls = _calls
    for name in ("_cross_device_ops", "_host_cross_device_ops"):
        setattr(extended, name, HostCrossDeviceOps(getattr(extended, name), _calls))


def _made(members: Collective) -> Calls:
    overlaps = _overlap(members)
    total = fixed_replicas()
    if not total:
        return Calls(members, overlaps=overlaps)
    division = replicas.held(total, members.world)
    members.hold(division)
    moves = holding.may_move()
    most = total if may_stay() else total - members.world + 1 if moves else 0
    turns = Turns(division[members.rank], total, members.world, most)
    calls = CallsInTurn(members, turns, overlaps=overlaps)
    if moves:
        calls.turns.balance = Balance(calls)
        holding.arrange(calls.turns.balance.between_steps)
    return calls


def _overlap(members: Collective) -> bool:
    """Whether sums begin early: where that pays or is asked for, when all workers want it."""
    own = settings()
    if own.rehearses:  # alone: what those whom it joins have traced already says how
        return own.rehearses_overlap
    wants = overlap_pays(members) if own.overlap == "auto" else own.overlap == "on"
    (wanting,) = members.all_reduce([np.array([wants], np.int64)])
    return int(wanting[0]) == members.world


def overlaps() -> bool:
    """Whether this process's sums begin before the backward pass ends."""
    return _calls is not None and _calls.overlaps


def rejoin(strategy: Any, cluster_resolver: Any, compress: str) -> None:
    """Connects a strategy's workers anew, in the round that this process has been given.

    All workers of that round call this. What has been traced goes on with them.

    Args:
      strategy: that has used the host collective.
      cluster_resolver: tells of the round's workers.
      compress: as for `adopt`.

    Raises:
      tf.errors.UnavailableError: one of them has gone meanwhile.
    """
    calls: Any = calls_of(strategy)
    calls.join()
    calls.group.close()
    if _listener is not None:
        _listener.close()
    strategy.extended.move(cluster_resolver)
    with as_tensorflow_fails():
        calls.group = _connect(strategy.extended, compress)
    division = replicas.held(calls.turns.total, calls.group.world)
    calls.group.hold(division)
    calls.turns.hold(division[calls.group.rank], calls.group.world)


def _connect(extended: Any, compress: str) -> Collective:
    """Connects with the workers at the addresses of the cluster."""
    global _store, _listener
    if extended._num_workers == 1:
        _store = Store()  # not that of a round before, whose rank 0 has gone
        return Collective(0, {}, 1)
    rank, size, own = extended._id_in_cluster, extended._num_workers, settings()
    addresses = [_address(text) for text in _addresses(extended._cluster_spec)]
    key = own.collective_key or _shared_key(addresses)
    listener = _listener = PeerListener(rank, size, key, *addresses[rank])
    if _ended:  # before there was anybody to be told
        listener.abort(_ended)
    collective = form(
        listener,
        rank,
        size,
        addresses,
        folder=own.state_path if own.shared_memory else None,
        patience=Patience(check=functools.partial(_silent, rank, key, addresses), tell=_tell_where),
        compress=compress,
        small_bytes=SMALL_BYTES if own.small_bytes is None else own.small_bytes,
        residuals=own.state_path,
        seconds=COME_SECONDS,
    )
    _store = listener.store(addresses[0])
    return collective


def _tell_where() -> None:
    """Says where this worker waits, so that it is found out when others wait elsewhere."""
    if _calls is not None:
        number, mark, where = _calls.group.stands
        channel.emit(reports.WaitsInCollective(number=number, mark=mark, where=where))
    for action in _when_it_waits:
        action()


def _addresses(cluster: Any) -> list[str]:
    """The address of each rank."""
    jobs = [job for job in ("chief", "worker") if job in cluster.jobs]
    return [cluster.task_address(job, i) for job in jobs for i in range(cluster.num_tasks(job))]


def _address(text: str) -> tuple[str, int]:
    address = parse_address(text, where="the cluster")
    return address.host.strip("[]"), address.port


def _shared_key(addresses: Sequence[tuple[str, int]]) -> str:
    """What keeps other jobs' workers out, where the workers were not started by one job of tfrun.

    It is no secret: who knows the cluster knows it. Such a cluster is its network's to protect.
    """
    cluster = hashlib.sha256(json.dumps(addresses).encode()).hexdigest()
    return handshake.key_of(cluster, world().round)


def _silent(me: int, key: str, addresses: Sequence[tuple[str, int]], peer: int) -> str:
    """Why a silent peer counts as gone; "" for one that is only late, see `links.Patience`.

    The peer's kernel accepts the connection, whatever its Python does; its agent finds out whether
    its process is stopped. A worker that has no agent has to answer itself, which takes as long as
    it holds Python's lock.
    """
    try:
        with socket.create_connection(addresses[peer], ALIVE_SECONDS) as connection:
            if not settings().collective_key:
                connection.settimeout(ANSWER_SECONDS)
                own = {"me": me, "peer": peer, "world": len(addresses)}
                handshake.call(connection, key, **own, use=handshake.STORE)
    except OSError as error:
        return f"does not answer: {error.strerror or error}"
    return ""


def sum_all(
    calls: Calls,
    values: Sequence[Any],
    gradients: Gradients | None = None,
    empty: Empty | None = None,
    *,
    before: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Sums each value over the workers; `tf.IndexedSlices` are gathered, not made dense.

    Args:
      calls: of a strategy.
      values: tensors or `tf.IndexedSlices`.
      gradients: those of them, all dense, that may travel compressed.
      empty: those of them that count as zeros on a worker without samples, if they are dense.
      before: is called before the worker waits for all that it gives itself.
    """
    values = [v if isinstance(v, tf.IndexedSlices) else tf.convert_to_tensor(v) for v in values]
    dense = [i for i, v in enumerate(values) if isinstance(v, tf.Tensor)]
    sparse = [i for i, v in enumerate(values) if isinstance(v, tf.IndexedSlices)]
    results: list[Any] = [None] * len(values)
    if dense:
        wanted = Sum(tensors=values, gradients=gradients, empty=empty).part(dense, "")
        for i, total in zip(dense, calls.all_reduce(wanted, before), strict=True):
            results[i] = total
    else:
        before()
    if sparse:
        parts = [part for i in sparse for part in (values[i].values, values[i].indices)]
        joined = calls.all_gather(parts, [0] * len(parts))
        for position, i in enumerate(sparse):
            rows, indices = joined[2 * position : 2 * position + 2]
            results[i] = tf.IndexedSlices(rows, indices, values[i].dense_shape)
    return results


def _over(total: Any, count: Any) -> Any:
    if isinstance(total, tf.IndexedSlices):
        return tf.IndexedSlices(_over(total.values, count), total.indices, total.dense_shape)
    return total / tf.cast(count, total.dtype)


def sum_in_turn(
    calls: CallsInTurn,
    values: Sequence[Any],
    gradients: Gradients | None,
    empty: Empty | None,
    for_all: Sequence[int],
    then: Callable[[Sequence[Any]], None],
    before: Callable[[], None],
) -> list[Any]:
    """Sums over the replicas, and has one of each worker's do something; `sum_all` says the rest.

    Args:
      calls: of a strategy.
      values: as of `sum_all`.
      gradients: likewise.
      empty: likewise.
      for_all: positions of dense ones whose sums each replica needs.
      then: is traced with all sums.
      before: as of `sum_all`.

    Returns:
      The sums of `for_all`.
    """
    values = [v if isinstance(v, tf.IndexedSlices) else tf.convert_to_tensor(v) for v in values]
    dense = [i for i, v in enumerate(values) if isinstance(v, tf.Tensor)]
    sparse = [i for i, v in enumerate(values) if isinstance(v, tf.IndexedSlices)]
    rows = [part for i in sparse for part in (values[i].values, values[i].indices)]

    def with_all(found: Sequence[tf.Tensor]) -> None:
        sums: dict[int, Any] = dict(zip(dense, found[: len(dense)], strict=True))
        parts = iter(found[len(dense) :])
        for i in sparse:
            sums[i] = tf.IndexedSlices(next(parts), next(parts), values[i].dense_shape)
        then([sums[i] for i in range(len(values))])

    wanted = Sum(tensors=values, gradients=gradients, empty=empty).part(dense, "")
    places = [dense.index(i) for i in for_all]
    return calls.update(wanted, places, with_all, before, rows)


class HostCrossDeviceOps(cross_device_ops.CollectiveAllReduce):
    """`CollectiveAllReduce` of workers that have one device each, without collective ops."""

    def __init__(self, upstream: Any, calls: Calls) -> None:
        self.__dict__.update(upstream.__dict__)  # devices, group size, options, launchers
        self._calls = calls

    def _all_reduce(self, reduce_op, value, replica_id, options):
        values, turns = tf.nest.flatten(value), getattr(self._calls, "turns", None)
        mean = self._group_size if reduce_op == tf.distribute.ReduceOp.MEAN else None
        travelled = travelling_results.sums_of(values, turns.total) if turns else None
        if turns and travelled is not None:
            results = travelled if mean is None else [_over(t, turns.total) for t in travelled]
            return tf.nest.pack_sequence_as(value, results)
        varies = turns and (turns.changes or not turns.one_each)
        if mean and varies and not tf.executing_eagerly():
            # A function may be called in a step, by each replica, or outside, by each worker.
            *results, mean = sum_all(self._calls, [*values, tf.ones([], tf.float64)])
        else:
            results = sum_all(self._calls, values)
        results = results if mean is None else [_over(total, mean) for total in results]
        return tf.nest.pack_sequence_as(value, results)

    def _all_reduce_per_replica_values(self, reduce_op, per_replica_values, options):
        local = [value.values[0] for value in per_replica_values]
        return [_mirrored(v) for v in self._all_reduce(reduce_op, local, 0, options)]

    def _batch_all_gather(self, per_replica_values, axis, options):
        local = [tf.convert_to_tensor(value.values[0]) for value in per_replica_values]
        axis = int(tf.get_static_value(axis))
        return [_mirrored(v) for v in self._calls.all_gather(local, [axis] * len(local))]

    def __deepcopy__(self, memo):
        return HostCrossDeviceOps(self, self._calls)


def _mirrored(value):
    wrap: Any = distributed_values.Mirrored
    return distribute_utils.regroup((value,), wrap_class=wrap)
