"""The rows of what is replaced in Keras, and in TensorFlow for the same reason."""

from __future__ import annotations

from tfrun.patches.patch import Patch, each

_KERAS_20585 = "https://github.com/keras-team/keras/issues/20585"
_KERAS = "keras.src"
_GENERATOR = "tensorflow.python.ops.stateful_random_ops:Generator"
_SEEDS = f"{_KERAS}.random.seed_generator"
_FEATURES = f"{_KERAS}.layers.preprocessing.feature_space"
_SAVING = f"{_KERAS}.saving.saving_api"
_TRAINER = "keras.src.backend.tensorflow.trainer"
_BASE = f"{_TRAINER}:TensorFlowTrainer"
_MODEL = "keras.src.models.model:Model"
_CONVS = "keras.src.layers.convolutional"
_NORM = "keras.src.layers.normalization.batch_normalization:BatchNormalization"
_LOSS = "keras.src.losses.loss"
_OPTIMIZER = "keras.src.optimizers.base_optimizer:BaseOptimizer"
_TENSORFLOW_OPTIMIZER = "keras.src.backend.tensorflow.optimizer:TFOptimizer"
_SCALED = "keras.src.optimizers.loss_scale_optimizer:LossScaleOptimizer"
_VARIABLE = "keras.src.backend:Variable"
_UPSTREAM = "tests/cluster/test_engine_upstream.py"
_NAMES_OF_SAVING = (
    *("keras.models", "keras.saving"),
    # Those of `tf.keras`, which `from tensorflow.keras.models import …` makes another of.
    *("keras._tf_keras.keras.models", "keras._tf_keras.keras.saving"),
)

RANDOM = (
    Patch(
        targets={
            f"{_SEEDS}:SeedGenerator.next": "random_numbers:draw_own_noise",
            f"{_SEEDS}:global_seed_generator": "random_numbers:draw_outside_of_functions",
            "tensorflow.python.framework.random_seed:get_seed": "random_numbers:seed_ops_apart",
        },
        issue="every replica draws the same random numbers, so that N replicas use the same "
        "dropout mask. And `keras.random.normal(shape)` fails in a step under a strategy",
        until="Keras's seed generators take the replica's number into account",
    ),
    Patch(
        targets={
            f"{_SEEDS}:SeedGenerator.__init__": "random_numbers:note_what_is_made",
            f"{_GENERATOR}.__init__": "random_numbers:note_what_is_made",
        },
        issue="what a seed generator that no model holds gives after a death begins anew",
        until="never: nobody else keeps the state of a script's own objects",
        needed=False,
    ),
    Patch(
        targets=each(
            "keras.src.backend.tensorflow.random:",
            "normal uniform randint truncated_normal gamma beta binomial",
            "random_numbers:draw_one_for_all",
        ),
        issue="a number that a step draws for its whole batch is another one on each replica",
        until="the patch before this one can go",
        needed=False,
    ),
    Patch(
        targets=each(
            "tensorflow._api.v2.random:",
            "normal uniform truncated_normal gamma poisson",
            "random_numbers:draw_one_for_all",
        ),
        issue="a number that a step draws for its whole batch is another one on each replica",
        until="the patch before these can go",
        needed=False,
        also=("tensorflow._api.v2.compat.v2.random",),
    ),
    Patch(
        targets={
            f"{_GENERATOR}._prepare_key_counter": "random_numbers:draw_own_noise_by_generator",
            f"{_GENERATOR}._preprocess_key": "random_numbers:key_apart",
        },
        issue="a `tf.random.Generator` gives all replicas the same numbers where it is made "
        "outside of the strategy's scope, or where one worker holds them",
        until="never: TensorFlow knows one replica on each device, and no script without a scope",
        needed=False,
    ),
    Patch(
        targets={
            "tensorflow.python.ops.script_ops:_internal_py_func": "python_calls:watch_python",
            "tensorflow.python.ops.script_ops:tape_cache": "python_calls:keep_tapes_apart",
        },
        issue="`np.random` in a `tf.numpy_function` of a step draws the same on all replicas, in "
        "silence, and on from where it was when a death has cut the step off",
        until="never: nobody else knows that other processes draw the same, or makes a step again",
        needed=False,
    ),
    Patch(
        targets={"numpy.random.bit_generator:randbits": "random_numbers:begin_alike"},
        issue="`np.random.default_rng()` begins with other numbers on each worker: their data, and "
        "the division of it for validation, differ",
        until="never: `keras.utils.set_random_seed` seeds numpy's global generator only",
        needed=False,
    ),
)

VARIABLES = (
    Patch(
        targets={f"{_VARIABLE}._direct_assign": "keras_variable:remember_assignments"},
        issue="https://github.com/keras-team/keras/issues/18366: the moving statistics of "
        "BatchNormalization are not averaged over the replicas, and CentralStorageStrategy refuses "
        "to assign them",
        until=f"{_UPSTREAM}::test_keras_still",
    ),
    Patch(
        targets={f"{_VARIABLE}.assign": "keras_variable:note_before"},
        issue="what a callback assigns on the chief alone is undone, because the other workers "
        "have not assigned it",
        until="never: the job decides what the chief may do alone",
    ),
    Patch(
        targets=each(f"{_VARIABLE}.", "assign_add assign_sub", "keras_variable:add_at_once"),
        issue="https://github.com/keras-team/keras/issues/18624: `assign(self + value)` loses what "
        "other workers of a job with parameter servers add at the same time",
        until="tests/unit/test_ps_updates.py::test_keras_still_needs_the_repairs",
    ),
    Patch(
        targets={f"{_VARIABLE}._initialize_with_initializer": "keras_variable:begin_at_once"},
        issue="variables that a model's own `train_step` creates are initialized after the state "
        "of a lost worker was restored, which they would overwrite",
        until="Keras builds a model that has its own `train_step` before the first step",
    ),
    Patch(
        targets={
            f"{_NORM}._moments": "masked_statistics:synchronize",
        },
        issue="`BatchNormalization(synchronized=True)` of what has a mask silently takes the "
        "statistics of each replica's own part",
        until="tests/unit/test_patches_masked.py::test_keras_still_forgets_the_other_replicas",
        needed=False,
    ),
    Patch(
        targets={
            "keras.src.backend.tensorflow.numpy:take": "keras_layers:read_rows_only",
            "keras.src.layers.core.embedding:Embedding.build": "keras_layers:mark_tied_tables",
        },
        issue="`Embedding` reads, and often copies, the whole table for each lookup",
        until="tests/unit/test_patches_rows.py::test_keras_still_reads_the_whole_table",
        needed=False,
    ),
    Patch(
        targets={
            f"{_CONVS}.base_conv:BaseConv.call": "empty_batches:give_a_row",
            f"{_CONVS}.conv1d:Conv1D.call": "empty_batches:give_a_row",
            f"{_CONVS}.base_depthwise_conv:BaseDepthwiseConv.call": "empty_batches:give_a_row",
            f"{_CONVS}.base_separable_conv:BaseSeparableConv.call": "empty_batches:give_a_row",
            f"{_CONVS}.base_conv_transpose:BaseConvTranspose.call": "empty_batches:give_a_row",
            "keras.src.layers.pooling.base_pooling:BasePooling.call": "empty_batches:give_a_row",
        },
        issue="oneDNN gives the convolution of a batch without a sample, as a worker may have of a "
        "short last one, its input's shape, and ends the process in the gradient of a max-pooling",
        until="tests/unit/test_patches_empty.py::test_onednn_still_gives_none_the_wrong_shape",
        needed=False,
    ),
    Patch(
        targets={"keras.src.backend.tensorflow.nn:ctc_loss": "empty_batches:give_a_label"},
        issue="`ctc_loss` of a batch without a sample fails",
        until="tests/unit/test_patches_empty.py::test_ctc_still_fails_without_a_sample",
        needed=False,
    ),
)

LOSSES = (
    Patch(
        targets={
            f"{_KERAS}.trainers.compile_utils:CompileLoss.call": (
                "keras_losses:count_losses_by_samples"
            )
        },
        issue="with several outputs, the loss of each is averaged over batches instead of samples",
        until=f"{_UPSTREAM}::test_keras_still",
    ),
    Patch(
        targets={
            f"{_LOSS}:scale_loss_for_distribution": "keras_losses:weigh",
            f"{_LOSS}:unscale_loss_for_distribution": "keras_losses:unweigh",
            f"{_LOSS}:reduce_weighted_values": "keras_losses:weigh_by_mask",
            f"{_BASE}._aggregate_additional_loss": "keras_losses:weigh_once",
            f"{_KERAS}.trainers.compile_utils:CompileLoss.build": "keras_losses:weigh_own_calls",
            f"{_KERAS}.metrics.reduction_metrics:Mean.update_state": (
                "keras_losses:log_whole_losses"
            ),
            f"{_KERAS}.metrics.reduction_metrics:Sum.update_state": "keras_losses:log_whole_sums",
            "tensorflow.python.eager.backprop:GradientTape.gradient": (
                "keras_losses:weigh_gradients tf_variables:differentiate_shards "
                "tf_variables:look_at_gradients"
            ),
        },
        issue="only a `keras.losses` object multiplies its loss by 1 / replicas: short batches, "
        "`add_loss`, masks and a script's own steps get a wrong weight. The tape also accepts "
        "variables that are split over parameter servers, and tells who trains alone",
        until=f"{_UPSTREAM}::test_keras_still",
    ),
    Patch(
        targets={
            f"{_KERAS}.metrics.metric:Metric.__init__": "keras_metrics:count_for_each_replica",
        },
        issue="a loop's body gives a metric one replica's value, and its worker may have several",
        until="never: how many replicas a worker holds is the job's to decide",
        needed=False,
    ),
    Patch(
        targets=each(
            "tensorflow.python.ops.nn_impl_distribute:",
            "compute_average_loss scale_regularization_loss",
            "keras_losses:note_stated_weights",
        ),
        issue="both divide by the number of replicas; tfrun records which losses the script has "
        "weighted by them",
        until="the patch of `scale_loss_for_distribution` can go",
        also=("tensorflow._api.v2.nn", "tensorflow._api.v2.compat.v2.nn"),
    ),
)

OPTIMIZERS = (
    Patch(
        targets={
            f"{_OPTIMIZER}.apply": (
                "keras_optimizer:scale_rate keras_optimizer:reduce_first "
                "keras_optimizer:update_on_servers"
            ),
            # It has an `apply` of its own, which meets the servers, and the others, too late.
            f"{_SCALED}.apply": "keras_optimizer:reduce_first keras_optimizer:update_on_servers",
            f"{_OPTIMIZER}.apply_gradients": "keras_optimizer:reduce_pairs_first",
            f"{_TENSORFLOW_OPTIMIZER}._all_reduce_sum_gradients": "keras_optimizer:reduce_once",
        },
        issue="gradients are clipped, accumulated and checked for infinite values on each replica "
        "before they are summed; with parameter servers all variables would be sent over the "
        "network; and what an optimizer assigns when a step builds it is lost, as the momentums "
        "of `ScheduleFreeAdamW`, which are to begin with the weights",
        until=f"{_UPSTREAM}::test_keras_still",
    ),
    Patch(
        targets={f"{_OPTIMIZER}._get_current_learning_rate": "keras_optimizer:take_scaled_rate"},
        issue="`--scale-batch` multiplies the learning rate where weights are updated, and what "
        "the script and its callbacks read and set stays theirs",
        until="never: the job decides how large a batch is",
    ),
    Patch(
        targets={
            f"{_OPTIMIZER}._backend_apply_gradients": "sharded_update:note_weights",
            f"{_OPTIMIZER}._clip_gradients": "sharded_update:clip_by_the_norm_of_all",
            f"{_OPTIMIZER}._update_model_variables_moving_average": "sharded_update:average_own",
            f"{_OPTIMIZER}._backend_reset_gradient_accumulators": (
                "sharded_update:begin_own_sums_anew"
            ),
            **each(
                f"{_TENSORFLOW_OPTIMIZER}.",
                "_backend_increment_gradient_accumulators",
                "sharded_update:accumulate_own",
            ),
            f"{_TENSORFLOW_OPTIMIZER}._backend_update_step": "sharded_update:update_own",
            f"{_TENSORFLOW_OPTIMIZER}._apply_weight_decay": "sharded_update:decay_own",
        },
        issue="with `--shard-optimizer` each worker updates some of the weights, and Keras's "
        "optimizers know no owners",
        until="Keras shares an optimizer's state among workers",
    ),
    Patch(
        targets={
            f"{_TENSORFLOW_OPTIMIZER}._overwrite_model_variables_with_average_value": (
                "sharded_update:average_own keras_optimizer:overwrite_on_servers"
            )
        },
        issue="averages of weights (`use_ema`) are not written to variables that are split over "
        "parameter servers",
        until="Keras supports `ShardedVariable`",
    ),
    Patch(
        targets={
            f"{_KERAS}.optimizers.adagrad:Adagrad.update_step": (
                "keras_optimizer:read_accumulators_by_rows"
            )
        },
        issue="Adagrad computes the square roots of all accumulators to update a few rows",
        until="tests/unit/test_patches_rows.py::test_adagrad_reads_accumulators_by_rows",
        needed=False,
    ),
)

TRAINER = (
    Patch(
        targets={f"{_TRAINER}:TFEpochIterator": "keras_trainer:read_feeds"},
        issue="`fit`, `evaluate` and `predict` accept a `tfrun.Dataset`, and can go on in the "
        "middle of an epoch",
        until="Keras lets a dataset provide its own epoch iterator",
    ),
    Patch(
        targets={f"{_BASE}.__init__": "keras_trainer:adopt_script"},
        issue="a script that names no strategy trains on all workers of its job as it stands",
        until="never: what a script is given is the launcher's to decide",
    ),
    Patch(
        targets={
            f"{_BASE}._maybe_symbolic_build": "keras_trainer:build_from_local_batch",
            f"{_TRAINER}:reduce_per_replica": "keras_trainer:reduce_logs",
        },
        issue=f"{_KERAS_20585}: `fit` fails on its first step on several workers",
        until=f"{_UPSTREAM}::test_fit_still_fails_on_several_workers",
    ),
    Patch(
        targets={f"{_BASE}._get_metrics_result_or_logs": "keras_trainer:agree_on_last_logs"},
        issue="the logs that a script's own `train_step` returns last differ between workers, so "
        "that callbacks would decide differently",
        until="Keras averages such logs over the workers",
    ),
    Patch(
        targets={
            f"{_BASE}._make_function": (
                "keras_trainer:count_executions keras_trainer:see_logs_of_all"
            ),
            f"{_BASE}._autoconvert_optionals": "keras_trainer:count_steps",
        },
        issue="`steps_per_execution` is a constant in the graph: a call would go beyond the end of "
        "an epoch, or beyond a step after which a snapshot or a checkpoint is due",
        until="the number of steps is an argument of Keras's train function",
    ),
    Patch(
        targets={
            f"{_BASE}.make_train_function": (
                "keras_trainer:refuse_to_compile keras_trainer:take_results_for_batches"
            ),
            f"{_BASE}.make_test_function": "keras_trainer:take_results_for_batches",
            f"{_BASE}.make_predict_function": "keras_trainer:take_results_for_batches",
        },
        issue="with parameter servers, the workers compute and Keras's loop receives their "
        "results; and `jit_compile=True` across workers is refused with TFRUN-505, because "
        "XLA has no all-reduce there",
        until="Keras 3 has a `fit` for ParameterServerStrategy",
    ),
    Patch(
        targets={
            f"{_BASE}.train_on_batch": (
                "keras_trainer:agree_on_batch_logs keras_trainer:refuse_on_servers"
            ),
            f"{_BASE}.test_on_batch": (
                "keras_trainer:agree_on_batch_logs keras_trainer:refuse_on_servers"
            ),
            f"{_BASE}.predict_on_batch": "keras_trainer:refuse_on_servers",
        },
        issue="what a call on one batch returns is computed from one worker's part of it; with "
        "parameter servers such a call has no meaning, and is refused with TFRUN-505",
        until="Keras averages it over the workers",
    ),
)

MODELS = (
    Patch(
        targets=each(
            f"{_MODEL}.",
            "fit evaluate predict train_on_batch test_on_batch predict_on_batch",
            "keras_model:run_with_others",
        ),
        issue="a training goes on where another worker was lost, keeps its state, reports its "
        "progress, and stops on all workers at once",
        until="never: this is what tfrun is for",
    ),
    Patch(
        # Not `Model`'s: Keras compares that with its own.
        targets={"keras.src.trainers.trainer:Trainer.compile": "keras_model:adopt"},
        issue="a model that was made outside the scope and is compiled in it is adopted, or "
        "refused",
        until="Keras moves a model to the strategy in whose scope it is compiled",
    ),
)

SAVING = (
    Patch(
        targets={
            **each(f"{_MODEL}.", "save save_weights export", "saves:save_on_chief"),
            **each(f"{_SAVING}:", "save_model save_weights", "saves:save_on_chief"),
            f"{_FEATURES}:FeatureSpace.save": "saves:save_on_chief",
        },
        issue="all workers call these, but only the chief should write, and only complete files",
        until="never: the job decides who writes",
        also=_NAMES_OF_SAVING,
    ),
    Patch(
        targets={
            f"{_SAVING}:load_model": "saves:load_after_chief",
            f"{_MODEL}.load_weights": "saves:load_into_after_chief",
            f"{_SAVING}:load_weights": "saves:load_into_after_chief",
        },
        issue="the chief may still have to save what all workers load: the others wait for that",
        until="never: the job decides who waits for whom",
        also=_NAMES_OF_SAVING,
    ),
    Patch(
        targets={"keras.src.utils.file_utils:makedirs": "saves:let_others_make_folders"},
        issue="Keras checks whether a folder exists and then makes it: FileExistsError when "
        "workers of one machine do so at the same moment",
        until="`file_utils.makedirs` passes `exist_ok`",
        needed=False,
    ),
)
