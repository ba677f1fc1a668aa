"""TensorFlow's strategies: whose classes answer, which devices they take, where a run may stand."""

from __future__ import annotations

import sys
import threading
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as collective
from tensorflow.python.distribute import parameter_server_strategy_v2 as servers
from tensorflow.python.eager import context

from tfrun.engine import (
    adopted_script,
    adoption,
    loop_calls,
    loop_refusals,
    multi_worker,
    outside_run,
    script_lines,
)
from tfrun.engine.local_mode import in_local_mode
from tfrun.ps import server_strategy
from tfrun.train import loop_data


def make_ours(original):
    """Every name of an upstream class gives tfrun's, a subclass of it.

    Names are many (`tf.distribute`, `tf.distribute.experimental`, `tf.compat.v2`, private
    modules) and may have been imported before, so it is the class itself that answers. The
    names stay what they were, and so do `isinstance` and `issubclass`.
    """
    del original  # object's
    ours = {
        collective.CollectiveAllReduceStrategy: multi_worker.MultiWorkerMirrored,
        collective._CollectiveAllReduceStrategyExperimental: (
            multi_worker.ExperimentalMultiWorkerMirrored
        ),
        servers.ParameterServerStrategyV2: server_strategy.ParameterServer,
    }

    def __new__(cls, *args, **kwargs):
        chosen = ours.get(cls, cls)
        given = adoption.given()
        if not isinstance(given, chosen):
            return object.__new__(chosen)
        adopted_script.asks_for(cls.__name__)
        return given

    return __new__


def give_the_jobs(original):
    """A strategy of one process becomes the job's where several workers train: see its module."""
    del original  # object's

    def __new__(cls, *args, **kwargs):
        return adopted_script.in_place_of(cls.__name__) or object.__new__(cls)

    return __new__


def refuse_alone(original):
    """`CentralStorageStrategy` keeps variables in one process, and the job has several."""

    def __init__(self, compute_devices=None, parameter_device=None):
        adopted_script.refuse("CentralStorageStrategy")
        original(self, compute_devices, parameter_device)

    return __init__


def adopt_at_scope(original):
    """A script's `tf.distribute.get_strategy().scope()`, where nothing else is said, is the job's.

    Keras enters that scope too, for a model that the chief runs alone.
    """

    def _scope(self, strategy):
        by_script = script_lines.is_script(sys._getframe(2).f_code.co_filename)
        takes = by_script and not in_local_mode()
        given = adopted_script.in_place_of(adopted_script.DEFAULT) if takes else None
        return original(self, strategy) if given is None else given.scope()

    return _scope


def meet_first(original):
    """What a script computes first waits for the job's other workers, if TensorFlow needs that.

    Up to then the script may still say with which devices and threads TensorFlow is to start.
    """
    meeting, met = threading.RLock(), False

    def ensure_initialized(self):
        nonlocal met
        if self._initialized:  # asked for each tensor that is made of numbers
            return
        with meeting:
            has_cluster = self._server_def or self._collective_ops_server_def
            if not met and not self._initialized and not has_cluster:
                met = adopted_script.is_to_adopt()
                if met:
                    multi_worker.meet()
        original(self)

    return ensure_initialized


def mirror_own_devices(original):
    """`MirroredStrategy()` takes the devices of this process, not those of all workers."""

    def all_local_devices(num_gpus=None):
        eager: Any = context.context()
        devices = original()
        server = eager._collective_ops_server_def or eager._server_def
        if server is not None:
            own = f"/job:{server.job_name}/replica:0/task:{server.task_index}/"
            devices = [device for device in devices if device.name.startswith(own)]
        return devices if num_gpus is None else devices[:num_gpus]

    return all_local_devices


def capture_outside_conditions(original):
    """Captures call-time values in the function around a condition.

    A collective takes its instance key when the function runs (`capture_call_time_value`).
    Conditions do not support that, so TensorFlow's CollectiveReplicaLauncher climbs out of them,
    but a `tf.function` that is *called* in a condition hands its own captures to the condition
    all the same, and the step ends with "You must feed a value for placeholder tensor". Keras
    builds exactly that for `steps_per_execution` > 1.
    """

    def capture_call_time_value(self, *args, **kwargs):
        graph = self
        while getattr(graph, "is_control_flow_graph", False):
            graph = graph.outer_graph
        with graph.as_default():
            return original(graph, *args, **kwargs)

    return capture_call_time_value


def refuse_nested_runs(original):
    """`OneDeviceStrategy.run` in a function that a `run` calls fails in tfrun's words."""

    def run(self, *args, **kwargs):
        if outside_run.is_inside():
            raise outside_run.inside_another()
        return original(self, *args, **kwargs)

    return run


def once_for_each_replica(original):
    """What a loop of the script's own calls in a step is done for all replicas of this worker."""

    def __call__(self, *args, **kwds):
        # No call of `is_in_step`: each step of `fit` comes by here.
        found = loop_calls.made(self, args, kwds) if loop_calls.open_steps else None
        if found is not None:
            return found[0]
        if loop_data.is_any:
            args, kwds = loop_data.in_function(args, kwds)
        try:
            return original(self, *args, **kwds)
        except tf.errors.OpError:
            if (refused := loop_refusals.update_alone()) is not None:
                raise refused from None
            raise

    return __call__
