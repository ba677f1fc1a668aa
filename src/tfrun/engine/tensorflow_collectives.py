"""TensorFlow's own collectives, RING and NCCL, where the host collective is not used.

How they are chosen, watched and ended, and where all workers stand once they no longer match: their
error is the same on all workers and names none of them.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.distribute.collective_all_reduce_strategy import coordination_config_pb2
from tensorflow.python.eager import context as eager_context

from tfrun.engine.host_collective_ops import Empty
from tfrun.job import unmatched_call
from tfrun.job.settings import settings
from tfrun.job.world import world

CommunicationOptions = tf.distribute.experimental.CommunicationOptions
Implementation = tf.distribute.experimental.CommunicationImplementation

# A stopped or unreachable worker is noticed after 2 s; with TensorFlow's own 10 s, after 9.
HEARTBEAT_TIMEOUT_MS = 3000
PROBE_TIMEOUT_SECONDS = 60
# Counted, not measured: a process that was stopped has its time when it goes on.
TICKS, TICK_SECONDS = 6, 0.5
# The error reaches all that wait within milliseconds; who does not wait has nothing to tell.
TELL_SECONDS, LEAST_SECONDS = 3.0, 0.05

_in_use = threading.Event()
_trials = itertools.count()  # of NCCL, in this process: as many on all workers


def _eager() -> Any:
    return eager_context.context()


def in_use() -> bool:
    """True when this process meets other workers in TensorFlow's own collectives."""
    return _in_use.is_set()


def settle(strategy, probe: Callable[[Any], bool] | None = None):
    """Decides between NCCL and RING for all workers, and lets the strategy use it.

    NCCL is for GPUs, and only trying shows whether it works (drivers, network interfaces). All
    workers must use the same, so one worker's failure counts for all.

    Args:
      strategy: a multi-worker strategy; all workers must call this.
      probe: tells whether NCCL works here; by default it makes a tiny all-reduce.

    Returns:
      The implementation that is used from now on.
    """
    if strategy.extended._num_workers > 1:
        _in_use.set()
    asked = strategy.extended._communication_options.implementation
    if asked == Implementation.RING or (asked == Implementation.AUTO and not has_gpu(strategy)):
        return _use(strategy, Implementation.RING)
    workers = strategy.extended._num_workers
    sharing = _sum_over_workers(strategy, float(settings().shares_gpu)) if workers > 1 else 0
    if sharing:
        why = (
            f"NCCL does not work between workers that share a GPU, as {sharing:.0f} of {workers} do"
        )
        advice = "--communication host is for workers of one device each"
    else:
        failures = _failures((probe or nccl_works)(strategy), workers)
        if not failures:
            return _use(strategy, Implementation.NCCL)
        why = f"NCCL does not work on {failures} of {workers} workers"
        advice = "NCCL_DEBUG=INFO shows in the workers' logs why NCCL failed"
    if strategy.extended._is_chief:
        warnings.warn(
            f"{why}; the job goes on with RING, which is slower between GPUs. "
            f"--communication ring asks for it without this warning; {advice}.",
            RuntimeWarning,
            stacklevel=3,
        )
    return _use(strategy, Implementation.RING)


def _failures(works: bool, workers: int) -> int:
    """On how many workers NCCL does not work; if on any, all can use their collectives again.

    One that has failed makes TensorFlow refuse all that come later ("Restart your program to
    reset"), RING's too. Connected anew, it starts afresh; as it then forgets who waits already, no
    worker may begin before all have. None of their own collectives can say that.
    """
    if workers == 1:
        return 0 if works else 1
    number = next(_trials)
    failures = workers - sum(word == "works" for word in _words(f"nccl/{number}", works))
    if failures:
        eager = _eager()
        eager.enable_collective_ops(eager._collective_ops_server_def)
        _words(f"afresh/{number}", works)
    return failures


def _words(about: str, works: bool) -> list[str]:
    """What each worker says, once all have."""
    here = world()
    name = f"tfrun/{here.round}/{about}/"
    put(f"{name}{here.rank}", "works" if works else "fails")
    found = [get(f"{name}{rank}", 2 * PROBE_TIMEOUT_SECONDS) for rank in range(here.size)]
    if None in found:
        silent = f"worker {found.index(None)} does not say whether NCCL works"
        raise tf.errors.UnavailableError(None, None, silent)
    return [word for word in found if word is not None]


def nccl_works(strategy) -> bool:
    """Makes one all-reduce with NCCL; False without a GPU or when it fails."""
    if not has_gpu(strategy):
        return False
    nccl = CommunicationOptions(
        implementation=Implementation.NCCL, timeout_seconds=PROBE_TIMEOUT_SECONDS
    )

    @tf.function
    def reduce():
        def on_replica():
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([1]), nccl)

        return strategy.run(on_replica)

    try:
        reduce()
        tf.experimental.async_clear_error()
    except tf.errors.OpError as error:
        tf.get_logger().warning("NCCL failed: %s", error)
        return False
    return True


def has_gpu(strategy) -> bool:
    return strategy.extended._local_device_type == "GPU"


def _sum_over_workers(strategy, value: float) -> float:
    """A sum over the workers' hosts, by RING: it has to work when NCCL does not."""
    total = strategy.extended._host_cross_device_ops.reduce(
        tf.distribute.ReduceOp.SUM,
        tf.identity(value),
        tf.identity(value),
        options=CommunicationOptions(implementation=Implementation.RING),
    )
    return float(strategy.experimental_local_results(total)[0])


def _use(strategy, implementation):
    """Makes `implementation` the default of everything that `strategy` reduces.

    `Options.merge` lets the callers' options win, and the launchers have copies of their own.
    """
    extended = strategy.extended
    chosen = extended._communication_options.merge(
        CommunicationOptions(implementation=implementation)
    )
    extended._communication_options = chosen
    for reducer in (extended._cross_device_ops, extended._host_cross_device_ops):
        reducer._options = chosen
        for launcher in reducer._launchers:
            launcher._options = chosen
    return implementation


def sum_all(context: Any, values: Sequence[Any], empty: Empty | None) -> list[Any]:
    """Sums each value over the replicas, as `host_collective.sum_all`; a reduction for each dtype.

    TensorFlow concatenates the tensors of a pack: that asks for one dtype.

    Args:
      context: the replica's.
      values: tensors or `tf.IndexedSlices`.
      empty: those of them that count as zeros on a worker without samples, if they are dense.
    """
    values = _zero_without_samples(values, empty)
    results: list[Any] = [None] * len(values)
    for dtype in dict.fromkeys(value.dtype for value in values):
        members = [i for i, value in enumerate(values) if value.dtype == dtype]
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [values[i] for i in members])
        for i, total in zip(members, sums, strict=True):
            results[i] = total
    return results


def _zero_without_samples(values: Sequence[Any], empty: Empty | None) -> list[Any]:
    """The values, or zeros where a batch is empty: there they may be 0 * NaN."""
    result = list(values)
    dense = [i for i in empty.which if isinstance(values[i], tf.Tensor)] if empty else []
    if empty is None or not dense:
        return result
    kept = tf.cond(
        empty.samples > 0,
        lambda: [tf.identity(values[i]) for i in dense],
        lambda: [_nothing_of(values[i], empty) for i in dense],
    )
    for i, value in zip(dense, kept, strict=True):
        result[i] = value
    return result


def _nothing_of(value: tf.Tensor, empty: Empty) -> tf.Tensor:
    nothing = tf.zeros_like(value)
    return tf.where(tf.math.is_nan(value), nothing, value) if empty.nans else nothing


def configure_heartbeat(cluster_resolver) -> None:
    """Configures the coordination service before TensorFlow does, with a shorter heartbeat.

    `MultiWorkerMirroredStrategy` configures the service only when nobody has, and offers no way
    to say how long a worker may stay silent.
    """
    eager = _eager()
    if eager.coordination_service is not None:
        return
    cluster = multi_worker_util.normalize_cluster_spec(cluster_resolver.cluster_spec())
    jobs = [job for job in ("chief", "worker") if job in cluster.jobs]
    if cluster_resolver.task_type not in jobs:
        return
    proto: Any = coordination_config_pb2
    eager.configure_coordination_service(
        service_type="standalone",
        service_leader=multi_worker_util.coordination_leader(cluster),
        heartbeat_timeout_in_ms=HEARTBEAT_TIMEOUT_MS,
        coordinated_jobs=[
            proto.CoordinatedJob(name=job, num_tasks=cluster.num_tasks(job)) for job in jobs
        ],
    )


def abort_soon(reason: str) -> None:
    """Makes them fail after a while, in which the last one that all workers have made is over."""
    threading.Thread(target=_abort, args=(reason,), name="tfrun ends", daemon=True).start()


def _abort(reason: str) -> None:
    """See `leaving.abort_collectives`; who says so again changes nothing."""
    for _ in range(TICKS):
        time.sleep(TICK_SECONDS)
    _eager().abort_collective_ops(tf.errors.FAILED_PRECONDITION, reason)


def places_of_all(mine: str) -> str:
    """Says where the workers stand; "" when the others cannot be asked.

    Each tells the others, by the coordination service of TensorFlow's cluster, where it has met
    the error.

    Args:
      mine: where this one does, see `unmatched_call.stands`.
    """
    here = world()
    places, until = {_task(here.rank): mine}, time.monotonic() + TELL_SECONDS
    try:
        _tell(here.rank, mine)
        for rank in set(range(here.size)) - {here.rank}:
            places[_task(rank)] = _told(rank, max(LEAST_SECONDS, until - time.monotonic()))
    except (tf.errors.OpError, RuntimeError):
        return ""  # the service has gone with the chief, or was never there
    return unmatched_call.parted(places, _task(here.rank)) if len(places) > 1 else ""


def _task(rank: int) -> str:
    return f"worker:{rank}"


def _name(rank: int) -> str:
    return f"tfrun/{world().round}/stands/{rank}"


@functools.cache  # a name can be given once, and it is the first error that counts
def _tell(rank: int, mine: str) -> None:
    put(_name(rank), mine)


def _told(rank: int, seconds: float) -> str:
    told = get(_name(rank), seconds)
    return "elsewhere" if told is None else told


def put(name: str, value: str) -> None:
    """Sets a string of TensorFlow's coordination service, once."""
    _eager().set_config_key_value(name, value)


def get(name: str, seconds: float) -> str | None:
    """Waits for a string of the service; None when there is none after so many seconds."""
    try:
        return _eager().get_config_key_value(name, int(1000 * seconds))
    except (tf.errors.DeadlineExceededError, tf.errors.NotFoundError):
        return None
