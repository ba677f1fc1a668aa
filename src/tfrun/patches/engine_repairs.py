"""Puts tfrun's strategies and the Keras 3 repairs in place."""

from __future__ import annotations

import sys
from collections.abc import Callable


def install() -> None:
    """Replaces `MultiWorkerMirroredStrategy` and repairs Keras, in this process; idempotent.

    Call it after importing TensorFlow and Keras and before the script runs. It executes no op,
    so that a process may call it and fork its workers afterwards.
    """
    from tfrun.engine import (
        keras_losses,
        keras_optimizer,
        keras_state,
        keras_trainer,
        mirrored,
        multi_step_function,
        multi_worker,
        noise,
    )
    from tfrun.patches import control_flow, distributed_variable
    from tfrun.ps import row_lookup, strategy, updates, variables

    multi_worker.replace_upstream()
    mirrored.mirror_own_devices()
    keras_optimizer.reduce_gradients_first()
    keras_state.remember_assignments()
    noise.draw_own_noise()
    keras_trainer.repair_trainer()
    keras_losses.weigh_losses()
    multi_step_function.count_executions()
    control_flow.capture_outside_conditions()
    distributed_variable.let_variables_be_numbers()
    strategy.replace_upstream()
    variables.repair_assign_add()
    row_lookup.repair_gradients()
    updates.update_on_servers()
    install_optional()


def install_optional() -> None:
    """Puts in place what changes no number: speed, measurements, words. Without it all goes on."""
    from tfrun.engine import outside_run, own_variables, step_clock
    from tfrun.patches import coordinator_log, row_reads, row_updates

    try_each(
        coordinator_log.make_quiet,
        outside_run.repair,
        own_variables.watch,
        row_updates.read_accumulators_by_rows,
        row_reads.read_rows_only,
        step_clock.measure_input,
    )


def try_each(*repairs: Callable[[], None]) -> None:
    """Leaves out those that have no place in this version of Keras and TensorFlow, and says so."""
    for repair in repairs:
        try:
            repair()
        except (AttributeError, ImportError, TypeError) as error:
            name = f"{repair.__module__}.{repair.__qualname__}"
            print(f"tfrun: done without {name}: {error}", file=sys.stderr, flush=True)
