"""The rows of what is replaced in TensorFlow."""

from __future__ import annotations

from tfrun.patches.patch import Patch

_DISTRIBUTE = "tensorflow.python.distribute"
_INPUT = f"{_DISTRIBUTE}.input_lib"
_VARIABLE = f"{_DISTRIBUTE}.values:DistributedVariable"
_RESOURCE = "tensorflow.python.ops.resource_variable_ops:ResourceVariable"

STRATEGIES = (
    Patch(
        targets={
            f"{_DISTRIBUTE}.collective_all_reduce_strategy:CollectiveAllReduceStrategy.__new__": (
                "tf_strategies:make_ours",
            ),
            f"{_DISTRIBUTE}.parameter_server_strategy_v2:ParameterServerStrategyV2.__new__": (
                "tf_strategies:make_ours",
            ),
        },
        issue="https://github.com/keras-team/keras/issues/20585: with these strategies Keras 3's "
        "`fit` fails. A script that names one gets tfrun's, which is a subclass of it",
        until="tests/cluster/test_engine_upstream.py::test_fit_still_fails_on_several_workers",
    ),
    Patch(
        targets={
            f"{_DISTRIBUTE}.mirrored_strategy:all_local_devices": (
                "tf_strategies:mirror_own_devices",
            ),
        },
        issue="once workers are connected, `MirroredStrategy()` takes the devices of all of them, "
        "and a variable on another worker's is a segmentation fault",
        until="`all_local_devices` gives those of its own process",
    ),
    Patch(
        targets={
            "tensorflow.python.framework.func_graph:FuncGraph.capture_call_time_value": (
                "tf_strategies:capture_outside_conditions",
            ),
        },
        issue="a function with a collective that is called in a `tf.cond` ends with 'You must feed "
        "a value for placeholder tensor': that is Keras's `steps_per_execution` above 1",
        until="tests/cluster/test_engine_upstream.py::test_captures_still_stop_at_a_condition",
    ),
    Patch(
        targets={
            f"{_DISTRIBUTE}.one_device_strategy:OneDeviceStrategy.run": (
                "tf_strategies:refuse_nested_runs",
            ),
            f"{_VARIABLE}.handle": ("tf_variables:name_the_handle",),
        },
        issue="a training step outside `strategy.run`, or a `run` in a `run`, fails in words about "
        "`.handle` and `merge_call`; here it is TFRUN-512",
        until="TensorFlow says what to do",
        needed=False,
    ),
    Patch(
        targets={
            f"{_VARIABLE}.__int__": ("tf_variables:as_int",),
            f"{_VARIABLE}.__float__": ("tf_variables:as_float",),
            f"{_VARIABLE}.__array__": ("tf_variables:as_array",),
            f"{_DISTRIBUTE}.sharded_variable:ShardedVariable.__array__": ("tf_variables:as_array",),
        },
        issue="`float(optimizer.learning_rate)` and `np.array(variable)`, by which Keras saves, "
        "are errors under a strategy",
        until="tests/cluster/test_strategies.py::test_tensorflow_still_needs_that_repair",
        adds=True,
    ),
    Patch(
        targets={
            f"{_RESOURCE}.{name}": ("tf_variables:look_at_assignments",)
            for name in ("assign", "assign_add", "assign_sub")
        },
        issue="a variable that was made outside the scope, and is assigned in a step what is of "
        "one worker's data, drifts without a word; here it is told as TFRUN-506",
        until="TensorFlow refuses such an assignment",
        needed=False,
    ),
)

DATA = (
    Patch(
        targets={
            f"{_DISTRIBUTE}.distribute_lib:{cls}.experimental_distribute_dataset": (
                "tf_data:distribute_ours",
            )
            for cls in ("Strategy", "StrategyV1")
        },
        issue="strategies take a `tfrun.Dataset` wherever they take a `tf.data.Dataset`",
        until="`tf.distribute` lets a dataset say how it is distributed",
    ),
    Patch(
        targets={
            f"{_INPUT}:DistributedDataset._create_cloned_datasets_from_dataset": (
                "tf_data:read_by_rows",
            ),
        },
        issue="each worker makes every sample of a batch and drops those of the others; and a "
        "worker's part of a batch that Python code made may be written to, in the script's arrays",
        until="a worker makes its own rows alone, and `SubBuffer` does not own its memory",
    ),
    Patch(
        targets={
            "tensorflow.python.data.ops.iterator_ops:OwnedIterator._create_iterator": (
                "tf_data:note_iterations",
            ),
            "tensorflow.python.data.ops.dataset_ops:DatasetV2.reduce": ("tf_data:note_iterations",),
        },
        issue="a shuffle goes on with its random numbers when it is iterated again, also by the "
        "script: only who counts that can find the same order after a restart",
        until="`tf.data` tells the state of a shuffle's random numbers",
    ),
    Patch(
        targets={
            "tensorflow.python.data.ops.multi_device_iterator_ops:_create_device_dataset": (
                "tf_iterators:end_at_once",
            ),
        },
        issue="each distributed iterator starts a thread that tunes nothing, and whose end it "
        "waits for: `fit` takes up to two seconds longer to return",
        until="tests/cluster/test_engine_upstream.py::test_iterators_are_still_tuned",
        needed=False,
    ),
    Patch(
        targets={
            f"{_INPUT}:_SingleWorkerOwnedDatasetIterator._make_iterator": (
                "tf_iterators:read_directly",
            ),
            f"{_INPUT}:_SingleWorkerDatasetIteratorBase._format_data_list_with_options": (
                "tf_iterators:give_what_is_read",
            ),
            f"{_INPUT}:_SingleWorkerDatasetIteratorSpec._component_specs": (
                "tf_iterators:specify_directly",
            ),
        },
        issue="a worker with one CPU hands its data out to one device: a millisecond a step, and "
        "sometimes SIGSEGV where such an iterator is dropped (TensorFlow 2.21)",
        until="tests/cluster/test_engine_upstream.py::test_keras_still",
        needed=False,
    ),
    Patch(
        targets={
            f"{_INPUT}:_calculate_replicas_with_values": ("tf_iterators:measure_waiting",),
        },
        issue="how long a worker waits for the others' input is measured nowhere else",
        until="TensorFlow has a hook between a worker's own batch and the question to all of them",
        needed=False,
    ),
)

SAVING = (
    Patch(
        targets={
            f"tensorflow.python.checkpoint.checkpoint:Checkpoint.{name}": (
                "saving:save_checkpoint",
            )
            for name in ("save", "write")
        },
        issue="all workers call it, and the chief alone is to write",
        until="never: the job decides who writes",
    ),
    Patch(
        targets={
            "tensorflow.python.checkpoint.checkpoint_management:CheckpointManager.save": (
                "saving:save_by_manager",
            ),
        },
        issue="all workers are to know the same checkpoints, which the chief alone writes",
        until="never: the job decides who writes",
    ),
    Patch(
        targets={"tensorflow.python.saved_model.save:save": ("saving:save_saved_model",)},
        issue="all workers call it, and the chief alone is to write",
        until="never: the job decides who writes",
        also=("tensorflow._api.v2.saved_model", "tensorflow._api.v2.compat.v2.saved_model"),
    ),
    Patch(
        targets={
            f"tensorflow.python.checkpoint.checkpoint:Checkpoint.{name}": (
                "saving:load_into_after_chief",
            )
            for name in ("restore", "read")
        },
        issue="what all workers restore may be what the chief is about to save: the others wait",
        until="never: the job decides who waits for whom",
    ),
    Patch(
        targets={"tensorflow.python.saved_model.load:load": ("saving:load_after_chief",)},
        issue="what all workers load may be what the chief is about to save: the others wait",
        until="never: the job decides who waits for whom",
        also=("tensorflow._api.v2.saved_model", "tensorflow._api.v2.compat.v2.saved_model"),
    ),
)
