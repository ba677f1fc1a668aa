"""`MultiWorkerMirroredStrategy`, repaired: the strategy of a job with several workers."""

from __future__ import annotations

import ctypes
import platform
import signal
import threading
import warnings
import weakref
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as upstream
from tensorflow.python.distribute import distribute_lib, multi_worker_util, values
from tensorflow.python.eager import context

from tfrun.collective import stamps
from tfrun.engine import (
    between_steps,
    communication,
    compression,
    host_collective,
    host_collective_ops,
    initial_values,
    own_copies,
    place_resolver,
    step_clock,
    tensorflow_collectives,
)
from tfrun.engine.calls_in_turn import CallsInTurn
from tfrun.engine.synchronous import SynchronousExtended, SynchronousStrategy
from tfrun.job import unmatched_call
from tfrun.job.errors import TfrunError, UsageError
from tfrun.job.settings import settings
from tfrun.job.world import fixed_replicas, may_stay, note_asked, take_one_for_good
from tfrun.process import allocator, channel, progress

TFConfigClusterResolver = tf.distribute.cluster_resolver.TFConfigClusterResolver
THIS_PROCESS = "/job:localhost/replica:0/task:0"
_WAYS = "--communication, the strategy's CommunicationOptions, or workers of several GPUs"


class MultiWorkerExtended(SynchronousExtended, upstream.CollectiveAllReduceExtended):
    """Everything that is TensorFlow's own, and what tfrun changes in it."""

    _host_calls: host_collective_ops.Calls | None = None  # set where the host collective is used

    def _initialize_multi_worker(self, cluster_resolver):
        tensorflow_collectives.configure_heartbeat(cluster_resolver)
        if _is_connected(cluster_resolver):
            # Connected a second time, TensorFlow forgets who waits in a collective already, and
            # the worker that is ahead waits for ever.
            self._std_server_started, self._enable_check_health = True, False
        try:
            super()._initialize_multi_worker(cluster_resolver)
        except RuntimeError as error:
            if "at program startup" not in str(error):
                raise
            if not _is_alone(cluster_resolver):
                raise UsageError(
                    "TFRUN-510",
                    "TensorFlow has already computed something, so it can no longer join other "
                    "workers",
                    where="the script, above tfrun.strategy() or MultiWorkerMirroredStrategy()",
                    expected="the strategy before the first tensor, variable, dataset or model",
                    fix=f"Make the strategy right after the imports, or {_instead()}",
                ) from error
            self._initialize_local(cluster_resolver)  # as without TF_CONFIG: nobody is to be met

    def _use_merge_call(self):
        # One replica in a process has nobody to merge with. Without merging, an optimizer may
        # stand in a `tf.cond` whose condition all workers share, and a function's own argument
        # can be reduced (TensorFlow: "destinations can not be empty").
        if len(self.worker_devices) == 1 and not tf.executing_eagerly():
            return False
        return super()._use_merge_call()

    def _get_variable_creator_initial_value(self, replica_id, device, primary_var, **kwargs):
        calls = self._host_calls
        if calls is None:
            return super()._get_variable_creator_initial_value(
                replica_id, device, primary_var, **kwargs
            )
        return lambda: initial_values.initial_value(calls, kwargs)

    def _reduce_to(self, reduce_op, value, destinations, options):
        calls: Any = self._host_calls
        if getattr(calls, "turns", None) and tf.executing_eagerly() and _counts_apart(value):
            return between_steps.made(lambda: calls.sum_of_copies(value.values[0]))
        if self._host_calls is not None or not _is_called_by_script() or not self._is_own(value):
            return super()._reduce_to(reduce_op, value, destinations, options)
        # TensorFlow takes one sum for another of the same shape. This one, which the script calls
        # itself, gets a shape that no sum within a step has: the two fail where they meet.
        own = value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value
        marked = tf.expand_dims(own, 0)
        result = super()._reduce_to(reduce_op, marked, destinations, options)
        summed: Any = self._local_results(result)[0]
        return tf.squeeze(summed, 0)

    def _is_own(self, value) -> bool:
        """Whether a value is the dense one of this worker's only replica."""
        if len(self.worker_devices) > 1 or isinstance(value, values.Mirrored | tf.IndexedSlices):
            return False
        parts = getattr(value, "values", (value,))
        return not isinstance(parts[0], tf.IndexedSlices)

    def _replica_ctx_all_reduce(self, reduce_op, value, options=None):
        # TensorFlow forgets the strategy's own options here, the size of the packs among them.
        options = self._communication_options.merge(options)
        return super()._replica_ctx_all_reduce(reduce_op, value, options)


def _counts_apart(value: Any) -> bool:
    return isinstance(value, values.DistributedVariable) and own_copies.is_apart(value.values[0])


class HostExtended(MultiWorkerExtended):
    """Of workers that talk through the host collective: TensorFlow knows this process alone.

    It makes no server and no coordination service, and need not know of any worker before its
    first tensor.
    """

    # Upstream's names; with these it sets up all but the cluster.
    _local_or_standalone_client_mode = True
    _enable_check_health = False
    _worker_device = _default_device = property(lambda _: THIS_PROCESS, lambda *_: None)

    def _initialize_multi_worker(self, cluster_resolver):
        upstream.CollectiveAllReduceExtended._initialize_multi_worker(self, cluster_resolver)

    def _in_multi_worker_mode(self):
        return may_stay() or super()._in_multi_worker_mode()

    @property
    def should_checkpoint(self):
        note_asked("strategy.extended.should_checkpoint")
        return super().should_checkpoint

    @property
    def should_save_summary(self):
        note_asked("strategy.extended.should_save_summary")
        return super().should_save_summary

    def _reduce_to(self, reduce_op, value, destinations, options):
        own = value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value
        is_one = not may_stay() and getattr(self._host_calls, "turns", None) is None
        if self._num_workers > 1 or is_one or isinstance(value, values.Mirrored):
            return super()._reduce_to(reduce_op, value, destinations, options)
        if tf.executing_eagerly() or isinstance(own, tf.IndexedSlices):
            return super()._reduce_to(reduce_op, value, destinations, options)
        # What is traced while this worker is alone is to reduce over its replicas, and when there
        # are others, too: `reduce` leaves out what it takes for a sum of one.
        options = self._communication_options.merge(options)
        ops = self._get_cross_device_ops(own)
        return ops._all_reduce(reduce_op, tf.convert_to_tensor(own), 0, options)

    def move(self, cluster_resolver) -> None:
        """Takes note of another round's workers: how many they are, and which is this one."""
        cluster = multi_worker_util.normalize_cluster_spec(cluster_resolver.cluster_spec())
        task = cluster_resolver.task_type, cluster_resolver.task_id
        self._cluster_resolver, self._cluster_spec = cluster_resolver, cluster
        self._task_type, self._task_id = task
        self._id_in_cluster = multi_worker_util.id_in_cluster(cluster, *task)
        self._num_workers = multi_worker_util.worker_count(cluster, task[0])
        self._is_chief = multi_worker_util.is_chief(cluster, *task)
        for name in ("_cross_device_ops", "_host_cross_device_ops"):
            getattr(self, name)._group_size = self._num_workers


class MultiWorkerMirrored(SynchronousStrategy, upstream.CollectiveAllReduceStrategy):
    """Synchronous training on several workers, with every Keras 3 feature that one worker has.

    Takes the arguments of `tf.distribute.MultiWorkerMirroredStrategy` and is one.
    """

    def __init__(self, cluster_resolver=None, communication_options=None):
        if hasattr(self, "_extended"):  # the script was given it before it asked
            _tell_unused(self, cluster_resolver, communication_options)
            return
        cluster_resolver = cluster_resolver or place_resolver.resolver()
        _refuse_servers(cluster_resolver)
        chosen = communication.options(communication_options)
        workers = _worker_count(cluster_resolver)
        by_host = communication.uses_host(workers, communication_options)
        if not by_host:
            take_one_for_good("its workers use TensorFlow's collectives")
            _refuse_replicas(workers)
        with progress.workers_start():
            extended_class = HostExtended if by_host else MultiWorkerExtended
            extended = extended_class(self, cluster_resolver, chosen)
        _tell_unused_gpus(extended, cluster_resolver)
        # Not upstream's __init__: it would make upstream's `extended`.
        distribute_lib.Strategy.__init__(self, extended)
        if by_host:
            with progress.workers_start():
                host_collective.adopt(self, compression.wanted())
        else:
            _give_back_sigterm()
            compression.check_is_host(self)
            tensorflow_collectives.settle(self)
        if extended._in_multi_worker_mode():
            _undo_generator_patch()
            self.step_clock = step_clock.StepClock()
            if isinstance(calls := extended._host_calls, CallsInTurn):
                self.step_clock.waited_in_turn = lambda: calls.waited
            _formed[:] = [weakref.ref(self)]


def _tell_unused_gpus(extended: Any, cluster_resolver: Any) -> None:
    """TensorFlow asks only its own resolver of TF_CONFIG for this process's devices."""
    if extended._local_device_type != "GPU" and tf.config.get_visible_devices("GPU"):
        warnings.warn(
            f"the strategy computes on the CPU: its {type(cluster_resolver).__name__} tells of no "
            'GPU. Give it num_accelerators={"GPU": 1}, or leave the resolver out.',
            RuntimeWarning,
            stacklevel=4,
        )


def _instead() -> str:
    if channel.is_open():  # a job: it has connected its workers, unless they use something else
        return "start the job with the --communication that it asks for"
    return "start the script with tfrun instead of python"


_formed: list[weakref.ref[MultiWorkerMirrored]] = []


def newest() -> MultiWorkerMirrored | None:
    """The strategy by which this process trains with other workers; None when it does not."""
    return _formed[0]() if _formed else None


def meet() -> None:
    """Connects the job's workers by TensorFlow's cluster, for the strategies that come later.

    The cluster can be joined before the first tensor only. Nothing happens where the workers talk
    through the host collective, which needs none.

    Raises:
      UsageError: TFRUN-105, see `communication.uses_host`.
    """
    cluster_resolver = TFConfigClusterResolver()
    workers = _worker_count(cluster_resolver)
    if workers == 1 or communication.uses_host(workers, None):
        return
    nobody: Any = object.__new__(MultiWorkerMirrored)
    nobody._collective_key_base = 0  # without a turn of its own: a peer may have made a strategy
    with progress.workers_start():
        MultiWorkerExtended(nobody, cluster_resolver, communication.CommunicationOptions())
    _give_back_sigterm()


def _tell_unused(given: MultiWorkerMirrored, cluster_resolver: Any, options: Any) -> None:
    """Warns of arguments of a strategy that the script was given before, and that has others."""
    extended, found = given.extended, []
    if options is not None:
        own, explicit = vars(communication.options()), vars(communication.options(options))
        by_host = extended._host_calls is not None  # which knows no packs, and is none of these
        automatic = options.implementation == tensorflow_collectives.Implementation.AUTO
        if not automatic if by_host else own != explicit:
            found.append("communication_options")
    if cluster_resolver is not None:
        cluster = extended._cluster_resolver.cluster_spec()
        if cluster_resolver.cluster_spec() != cluster:
            found.append("cluster_resolver")
    if found:
        warnings.warn(
            f"{' and '.join(found)} {'has' if len(found) == 1 else 'have'} no effect: the script's "
            "first model has already been given the job's strategy. Make the strategy above the "
            "first model.",
            RuntimeWarning,
            stacklevel=3,
        )


def _give_back_sigterm() -> None:
    """Has the handler of SIGTERM that Python knows hear of it again.

    With the coordination service, TensorFlow replaces it in C (preemption_notifier.cc) and does
    nothing with the signal but log it: neither the script's own handler nor the default has its
    effect any more. Python's own record of the handler is not touched by that. Does nothing
    outside the main thread, where Python does not allow it.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _undo_generator_patch() -> None:
    """Takes back what TensorFlow does to the allocator of every process that feeds a strategy.

    The first GeneratorDataset op of a process calls `mallopt(M_MMAP_THRESHOLD, 128 KB)`
    ("Memory patch applied: M_TRIM_THRESHOLD=128 kb was set.", generator_dataset_op.cc), against
    a leak in tf.data (tensorflow/tensorflow#65675). Every distributed dataset has such an op, so
    `fit` pays 5 to 15 ms a step for it. It happens once a process: here it is made to
    happen, and undone. Nothing happens without glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    # The op alone: `from_generator` traces six functions for it, which takes 40 ms.
    nothing = tf.function(lambda: 0, autograph=False).get_concrete_function()
    tf.raw_ops.GeneratorDataset(
        init_func_other_args=[],
        next_func_other_args=[],
        finalize_func_other_args=[],
        init_func=nothing,
        next_func=nothing,
        finalize_func=nothing,
        output_types=[tf.int32],
        output_shapes=[()],
    )
    allocator.keep_memory(ctypes.CDLL(None).mallopt)


def _is_called_by_script() -> bool:
    """Whether it is in `strategy.reduce`, and not in the tracing of a function."""
    call = unmatched_call.CALLS[stamps.standing().call]
    return tf.executing_eagerly() and call == "strategy.reduce"


def _is_connected(cluster_resolver) -> bool:
    """Whether an earlier strategy of this process has met the workers of this cluster."""
    eager: Any = context.context()
    server = eager._collective_ops_server_def
    cluster = multi_worker_util.normalize_cluster_spec(cluster_resolver.cluster_spec())
    return server is not None and server.cluster == cluster.as_cluster_def()


def _worker_count(cluster_resolver) -> int:
    """How many workers a cluster has that train together with this task."""
    cluster = multi_worker_util.normalize_cluster_spec(cluster_resolver.cluster_spec())
    task_type = cluster_resolver.task_type
    return multi_worker_util.worker_count(cluster, task_type) if cluster.jobs and task_type else 1


def _is_alone(cluster_resolver) -> bool:
    """Whether a cluster has one task."""
    jobs = cluster_resolver.cluster_spec().as_dict()
    return sum(len(addresses) for addresses in jobs.values()) == 1


def _refuse_replicas(workers: int) -> None:
    """TensorFlow's collectives add up one replica of each worker.

    Raises:
      UsageError: TFRUN-107.
    """
    if settings().in_place == "on" and "in_place" in settings().stated:
        raise UsageError(
            "TFRUN-107",
            "--in-place has no effect here: workers stay in the host collective, and these "
            f"{workers} use TensorFlow's",
            where=_WAYS,
            fix="Leave out --in-place; or use --communication host, for workers of one device each",
        )
    if fixed_replicas() not in (0, workers):
        raise UsageError(
            "TFRUN-107",
            f"{fixed_replicas()} replicas are for the host collective, and these {workers} "
            "workers use TensorFlow's",
            where=_WAYS,
            fix="Use --communication host, which is for workers of one device each; or leave out "
            "--replicas",
        )


def _refuse_servers(cluster_resolver) -> None:
    """TensorFlow would wait for workers that run its server only, and for ever."""
    if "ps" in cluster_resolver.cluster_spec().jobs:
        raise TfrunError(
            "TFRUN-503",
            "MultiWorkerMirroredStrategy does not fit: the job has parameter servers",
            where="TF_CONFIG cluster.ps",
            expected="a ParameterServerStrategy",
            fix="Use tfrun.strategy(), or start the job without --ps",
        )


class ExperimentalMultiWorkerMirrored(
    MultiWorkerMirrored, upstream._CollectiveAllReduceStrategyExperimental
):
    """The same under its old name, whose first argument is the collective implementation."""

    def __init__(
        self,
        communication=tf.distribute.experimental.CommunicationImplementation.AUTO,
        cluster_resolver=None,
    ):
        options = tf.distribute.experimental.CommunicationOptions(implementation=communication)
        super().__init__(cluster_resolver, options)
