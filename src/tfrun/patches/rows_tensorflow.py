"""The rows of what is replaced in TensorFlow."""

from __future__ import annotations

from tfrun.patches.patch import Patch, each

_OPS = "tensorflow.python.data.ops"
_DISTRIBUTE = "tensorflow.python.distribute"
_INPUT = f"{_DISTRIBUTE}.input_lib"
_VARIABLE = f"{_DISTRIBUTE}.values:DistributedVariable"
_VARIABLES = "tensorflow.python.ops.resource_variable_ops"
_TABLES = "tensorflow.python.ops.lookup_ops"
_ASSIGN = "assign assign_add assign_sub"
_SCATTER = (
    "scatter_sub scatter_add scatter_max scatter_min scatter_mul scatter_div scatter_update "
    "batch_scatter_update scatter_nd_sub scatter_nd_add scatter_nd_update scatter_nd_max "
    "scatter_nd_min"
)
_CHECKPOINT = "tensorflow.python.checkpoint"
_NAMES_OF_SAVED_MODEL = (
    "tensorflow._api.v2.saved_model",
    "tensorflow._api.v2.compat.v2.saved_model",
)
_RECORDS = "tensorflow.python.lib.io.tf_record:TFRecordWriter"
_TORN = "all workers of a script write the same file, and tear it"
_WHOSE = "never: the job decides whose file stands"
_FILE = "tensorflow.python.lib.io.file_io:FileIO"

STRATEGIES = (
    Patch(
        targets={
            f"{_DISTRIBUTE}.collective_all_reduce_strategy:CollectiveAllReduceStrategy.__new__": (
                "tf_strategies:make_ours"
            ),
            f"{_DISTRIBUTE}.parameter_server_strategy_v2:ParameterServerStrategyV2.__new__": (
                "tf_strategies:make_ours"
            ),
        },
        issue="https://github.com/keras-team/keras/issues/20585: Keras 3's `fit` fails under these "
        "strategies. A script that makes one gets tfrun's own, which is a subclass of it",
        until="tests/cluster/test_engine_upstream.py::test_fit_still_fails_on_several_workers",
    ),
    Patch(
        targets={
            f"{_DISTRIBUTE}.mirrored_strategy:MirroredStrategy.__new__": (
                "tf_strategies:give_the_jobs"
            ),
            f"{_DISTRIBUTE}.one_device_strategy:OneDeviceStrategy.__new__": (
                "tf_strategies:give_the_jobs"
            ),
            f"{_DISTRIBUTE}.central_storage_strategy:CentralStorageStrategy.__init__": (
                "tf_strategies:refuse_alone"
            ),
            f"{_DISTRIBUTE}.distribute_lib:_DefaultDistributionExtended._scope": (
                "tf_strategies:adopt_at_scope"
            ),
        },
        issue="a script for one process trains on all workers of its job as it stands",
        until="never: what a script is given is the launcher's to decide",
    ),
    Patch(
        targets={
            "tensorflow.python.eager.polymorphic_function.polymorphic_function:Function.__call__": (
                "tf_strategies:once_for_each_replica"
            )
        },
        issue="a loop of the script's own calls its step itself, and a worker may have several "
        "replicas to call it for",
        until="never: how many replicas a worker holds is the job's to decide",
    ),
    Patch(
        targets={
            "tensorflow.python.eager.context:Context.ensure_initialized": "tf_strategies:meet_first"
        },
        issue="TensorFlow can join a cluster before its first tensor only, and a script that names "
        "no strategy asks for one with its first model",
        until="`TFE_EnableCollectiveOps` connects a context that has computed something",
    ),
    Patch(
        targets={
            f"{_DISTRIBUTE}.mirrored_strategy:all_local_devices": "tf_strategies:mirror_own_devices"
        },
        issue="once the workers are connected, `MirroredStrategy()` takes the devices of all "
        "workers, and a variable on another worker's device is a segmentation fault",
        until="`all_local_devices` returns only the devices of its own process",
    ),
    Patch(
        targets={
            "tensorflow.python.framework.func_graph:FuncGraph.capture_call_time_value": (
                "tf_strategies:capture_outside_conditions"
            )
        },
        issue="a function that contains a collective and is called in a `tf.cond` fails with 'You "
        "must feed a value for placeholder tensor'; Keras's `steps_per_execution` above 1 does "
        "that",
        until="tests/cluster/test_engine_upstream.py::test_captures_still_stop_at_a_condition",
    ),
    Patch(
        targets={
            f"{_DISTRIBUTE}.one_device_strategy:OneDeviceStrategy.run": (
                "tf_strategies:refuse_nested_runs"
            ),
            f"{_VARIABLE}.handle": "tf_variables:name_the_handle",
        },
        issue="a training step outside `strategy.run`, or a `strategy.run` inside another one, "
        "fails with a message about `.handle` or `merge_call`; with this patch it is TFRUN-512, "
        "which says what to do",
        until="TensorFlow's own message says what to do",
        needed=False,
    ),
    Patch(
        targets={
            f"{_VARIABLE}.__int__": "tf_variables:as_int",
            f"{_VARIABLE}.__float__": "tf_variables:as_float",
            f"{_VARIABLE}.__array__": "tf_variables:as_array",
            f"{_DISTRIBUTE}.sharded_variable:ShardedVariable.__array__": "tf_variables:as_array",
        },
        issue="`float(optimizer.learning_rate)` and `np.array(variable)`, which Keras needs for "
        "saving, are errors under a strategy",
        until="tests/cluster/test_strategies.py::test_tensorflow_still_needs_that_repair",
        adds=True,
    ),
    Patch(
        targets={
            f"{_DISTRIBUTE}.values:SyncOnReadVariable._get": "tf_variables:get_own_copy",
        },
        issue="a metric that divides one of its variables by another one (`R2Score`) sums it over "
        "the workers also where one of them evaluates alone, and waits for the others",
        until="`SyncOnReadVariable._get` looks at the save context, as its other methods do",
    ),
    Patch(
        targets={
            "tensorflow.python.ops.variables:VariableMetaclass.__call__": "tf_variables:note_own",
            "keras.src.backend:Variable.__init__": "tf_variables:note_own_of_keras",
        },
        issue="a variable that a script makes outside of its models begins anew after a death",
        until="never: nobody else keeps the state of a script's own objects",
        needed=False,
    ),
    Patch(
        targets={
            # TensorFlow has wrapped these three of one class, not of those made in a step.
            **each(f"{_VARIABLES}:ResourceVariable.", _ASSIGN, "tf_variables:look_at_assignments"),
            **each(
                f"{_VARIABLES}:BaseResourceVariable.",
                f"{_ASSIGN} {_SCATTER}",
                "tf_variables:look_at_assignments",
            ),
        },
        issue="a variable that was made outside the scope, and that a step assigns something "
        "computed from one worker's data, gets other values on each worker without any message; "
        "with this patch TFRUN-506 reports it",
        until="TensorFlow refuses such an assignment",
        needed=False,
    ),
    Patch(
        targets={
            f"{_TABLES}:{name}": "tf_variables:look_at_tables"
            for name in (
                *("MutableHashTable.insert", "MutableHashTable.remove"),
                *("DenseHashTable.insert_or_assign", "DenseHashTable.erase"),
            )
        },
        issue="a lookup table that a step changes is another one on each worker, and is empty "
        "where a worker starts again; with this patch TFRUN-506 and a line tell it",
        until="TensorFlow refuses it in a strategy's step",
        needed=False,
    ),
)

DATA = (
    Patch(
        targets={
            f"{_DISTRIBUTE}.distribute_lib:{cls}.experimental_distribute_dataset": (
                "tf_data:distribute_ours"
            )
            for cls in ("Strategy", "StrategyV1")
        },
        issue="strategies accept a `tfrun.Dataset` wherever they accept a `tf.data.Dataset`",
        until="`tf.distribute` lets a dataset define how it is distributed",
    ),
    Patch(
        targets={
            f"{_INPUT}:DistributedDataset._create_cloned_datasets_from_dataset": (
                "tf_data:read_by_rows"
            )
        },
        issue="each worker makes every sample of a batch and drops those of the other workers; and "
        "TensorFlow may write to a worker's part of a batch that Python code has made, which is "
        "memory of the script's own arrays",
        until="a worker makes its own rows alone, and `SubBuffer` does not own its memory",
    ),
    Patch(
        targets={
            f"{_OPS}.iterator_ops:OwnedIterator._create_iterator": "tf_data:note_iterations",
            f"{_OPS}.dataset_ops:DatasetV2.reduce": "tf_data:note_iterations",
        },
        issue="a shuffle continues its random numbers each time it is iterated, also by the "
        "script: after a restart, only counting the iterations finds the same order again",
        until="`tf.data` can return the state of a shuffle's random numbers",
    ),
    Patch(
        targets={f"{_OPS}.dataset_ops:DatasetV2.cache": "tf_data:cache_for_itself"},
        issue='two workers that cache in one file fail ("there appears to be a concurrent caching '
        'iterator"), and so do all after the death of one that has not read its data to the end',
        until="never: TensorFlow's locks know of no processes",
    ),
    Patch(
        targets={
            f"{_OPS}.multi_device_iterator_ops:_create_device_dataset": "tf_iterators:end_at_once"
        },
        issue="each distributed iterator starts a thread that tunes nothing, and waits for it at "
        "its own end: `fit` takes up to two seconds longer to return",
        until="tests/cluster/test_engine_upstream.py::test_iterators_are_still_tuned",
        needed=False,
    ),
    Patch(
        targets={
            f"{_INPUT}:_SingleWorkerOwnedDatasetIterator._make_iterator": (
                "tf_iterators:read_directly"
            ),
            f"{_INPUT}:_SingleWorkerDatasetIteratorBase._format_data_list_with_options": (
                "tf_iterators:give_what_is_read"
            ),
            f"{_INPUT}:_SingleWorkerDatasetIteratorSpec._component_specs": (
                "tf_iterators:specify_directly"
            ),
        },
        issue="a worker with one CPU device distributes its data to devices all the same: that "
        "takes a millisecond of each step, and is sometimes a SIGSEGV when such an iterator is "
        "deleted (TensorFlow 2.21)",
        until="tests/cluster/test_engine_upstream.py::test_keras_still",
        needed=False,
    ),
    Patch(
        targets={f"{_INPUT}:_calculate_replicas_with_values": "tf_iterators:measure_waiting"},
        issue="TensorFlow does not measure how long a worker waits for the input of the others",
        until="TensorFlow has a hook between reading a worker's own batch and asking all workers "
        "whether they have one",
        needed=False,
    ),
)

SAVING = (
    Patch(
        targets={
            **each(
                f"{_CHECKPOINT}.checkpoint:Checkpoint.",
                "save write",
                "saves:save_checkpoint",
            ),
            f"{_CHECKPOINT}.checkpoint_management:CheckpointManager.save": "saves:save_by_manager",
            "tensorflow.python.saved_model.save:save": "saves:save_saved_model",
        },
        issue="all workers call these and should know the same checkpoints; only the chief writes",
        until="never: the job decides who writes",
        also=_NAMES_OF_SAVED_MODEL,
    ),
    Patch(
        targets={
            **each(
                f"{_CHECKPOINT}.checkpoint:Checkpoint.",
                "restore read",
                "saves:load_into_after_chief",
            ),
            "tensorflow.python.saved_model.load:load": "saves:load_after_chief",
        },
        issue="the chief may still have to save what all workers load: the others wait for that",
        until="never: the job decides who waits for whom",
        also=_NAMES_OF_SAVED_MODEL,
    ),
)

FILES = (
    Patch(
        targets={
            f"{_RECORDS}.__init__": "tf_files:write_own_records",
            f"{_RECORDS}.close": "tf_files:give_name",
            f"{_RECORDS}.__exit__": "tf_files:give_name_at_exit",
            f"{_FILE}._prewrite_check": "tf_files:write_own_file",
            f"{_FILE}.flush": "tf_files:show_own_file",
            f"{_FILE}.close": "tf_files:give_name",
        },
        issue=_TORN,
        until=_WHOSE,
        needed=False,
    ),
    Patch(
        targets={"tensorflow.python.ops.gen_io_ops:write_file": "tf_files:write_own_contents"},
        issue=_TORN,
        until=_WHOSE,
        needed=False,
        also=("tensorflow._api.v2.io", "tensorflow._api.v2.compat.v2.io"),
    ),
    Patch(
        targets={
            "h5py._hl.files:File.__init__": "tf_files:write_own_hdf5",
            "h5py._hl.files:File.close": "tf_files:give_name",
        },
        issue="HDF5 locks a file that it writes: the second worker of a script could not open it",
        until=_WHOSE,
        needed=False,
    ),
)
