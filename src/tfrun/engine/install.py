"""Puts tfrun's strategies and the Keras 3 repairs in place."""

from __future__ import annotations


def install() -> None:
    """Replaces `MultiWorkerMirroredStrategy` and repairs Keras, in this process; idempotent.

    Call it after importing TensorFlow and Keras and before the script runs. It executes no op,
    so that a process may call it and fork its workers afterwards.
    """
    from tfrun.engine import (
        control_flow,
        coordinator_log,
        distributed_variable,
        executions,
        keras_losses,
        keras_optimizer,
        keras_state,
        keras_trainer,
        mirrored,
        multi_worker,
        noise,
        outside_run,
        own_variables,
        row_updates,
        rows,
        step_clock,
    )
    from tfrun.engine.parameter_server import lookup, strategy, updates, variables

    multi_worker.replace_upstream()
    mirrored.mirror_own_devices()
    keras_optimizer.reduce_gradients_first()
    keras_state.remember_assignments()
    noise.draw_own_noise()
    keras_trainer.repair_trainer()
    keras_losses.weigh_losses()
    outside_run.repair()
    own_variables.watch()
    executions.count_executions()
    step_clock.measure_input()
    control_flow.capture_outside_conditions()
    coordinator_log.make_quiet()
    distributed_variable.let_variables_be_numbers()
    strategy.replace_upstream()
    variables.repair_assign_add()
    rows.read_rows_only()
    row_updates.read_accumulators_by_rows()
    lookup.repair_gradients()
    updates.update_on_servers()
