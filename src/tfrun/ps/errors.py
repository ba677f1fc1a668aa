"""The errors of training on parameter servers, with their codes."""

from __future__ import annotations

from tfrun.job.errors import TfrunError, UsageError


def cannot_be_made(what: str) -> UsageError:
    return UsageError(
        "TFRUN-613",
        f"workers of parameter servers cannot make their own batches of {what}",
        where="model.fit",
        expected="arrays, a tfrun.Dataset of arrays or files, a tf.data.Dataset without Python "
        "code in it, or a function that returns one",
        fix="Pass tfrun.Dataset.from_arrays, from_tfrecords or from_files; or a function "
        "dataset_fn(input_context) with steps_per_epoch",
    )


def no_steps() -> UsageError:
    return UsageError(
        "TFRUN-614",
        "the data has no end, and nothing says how many steps make an epoch",
        where="model.fit",
        expected="steps_per_epoch (steps for evaluate and predict)",
    )


def not_everywhere(what: str) -> TfrunError:
    return TfrunError(
        "TFRUN-505",
        f"{what} does not work with parameter servers",
        where="model",
        fix="Use fit, evaluate and predict, or a tf.distribute.coordinator.ClusterCoordinator",
    )
