"""One optimizer step: gradients go to the servers, and each server updates what it holds.

Only gradients cross the wire: slots live beside their weights, and the optimizer's arithmetic runs
there. The update of a server is one op (see `unit`): it begins when all of its gradients have
arrived, waits for nobody once it has begun, and so happens as a whole or not at all, also when the
worker dies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers import loss_scale_optimizer
from tensorflow.python.framework import ops

from tfrun.engine.gradient_sums import check_scope
from tfrun.job.errors import TfrunError
from tfrun.ps import variables
from tfrun.ps.server_step import Work, run_now, traced_works
from tfrun.ps.update_recorder import UpdateRecorder, recording
from tfrun.ps.variables import ShardGradients

# They look at a variable as a whole: at its norm, its rows and columns, its singular values.
_WHOLE: tuple[type, ...] = tuple(
    getattr(keras.optimizers, name)
    for name in ("Adafactor", "Lamb", "Muon")
    if hasattr(keras.optimizers, name)
)


def apply(optimizer: Any, gradients: list[Any], trainable: list[Any]) -> None:
    _check(optimizer, trainable)
    check_scope(optimizer, variables.strategy_of(trainable[0]))
    if not optimizer.built:
        with _making_slots(trainable[0]):
            optimizer.build(trainable)
        optimizer.built = True
    optimizer._check_variables_are_known(trainable)
    pairs = [(g, v) for g, v in zip(gradients, trainable, strict=True) if g is not None]
    if not pairs:
        raise ValueError("No gradients provided for any variable.")
    whole = [v for _, v in pairs]
    clipped = _clip(optimizer, [g for g, _ in pairs])
    known = {id(v): tf.identity(v._value) for v in optimizer.variables if v.shape.rank == 0}
    # A schedule reads `iterations` here, on the worker.
    rate = tf.convert_to_tensor(optimizer.learning_rate)
    works = _shared(optimizer, known)
    for gradient, variable in zip(clipped, whole, strict=True):
        pieces = gradient if isinstance(gradient, ShardGradients) else [gradient]
        for part, piece in enumerate(pieces):
            if piece is not None:
                works.append(_work(optimizer, variable, part, piece, known, rate))
    done = optimizer.iterations._value
    works.append(Work(device=done.device, inputs=[], run=lambda: [variables.add(done, 1)]))
    if (of_step := traced_works()) is not None:
        of_step += works
    else:
        run_now(works)


@contextlib.contextmanager
def _making_slots(variable: Any) -> Iterator[None]:
    """For an optimizer that Keras does not know of: its slots are made while a step is traced.

    Keras would put them off to the end of the step's scope of values, and the function that is
    traced would make them its own, on the chief (tensorflow/python/eager/polymorphic_function).
    """
    strategy: Any = variables.strategy_of(variable)
    with tf.init_scope():
        if tf.distribute.has_strategy():
            yield
            return
        graph = ops.get_default_graph()
        creators, graph._variable_creator_stack = graph._variable_creator_stack, []
        values = global_state.get_global_attribute("stateless_scope")
        global_state.set_global_attribute("stateless_scope", None)
        try:
            with strategy.scope():
                yield
        finally:
            global_state.set_global_attribute("stateless_scope", values)
            graph._variable_creator_stack = creators


def _work(
    optimizer: Any, variable: Any, part: int, gradient: Any, known: Any, rate: tf.Tensor
) -> Work:
    target = variables.parts(variable)[part]
    keys = list(known)
    if isinstance(gradient, tf.IndexedSlices):
        summed, rows = unique_rows(gradient)
        inputs = [summed, rate, *known.values(), rows]
    else:
        inputs = [gradient, rate, *known.values()]

    def run(summed: tf.Tensor, rate: tf.Tensor, *rest: tf.Tensor) -> list[tf.Operation]:
        values = dict(zip(keys, rest, strict=False))
        rows = rest[len(keys)] if len(rest) > len(keys) else None
        if rows is not None and (optimizer.use_ema or isinstance(optimizer, _WHOLE)):
            # What it does to other rows is not nothing. Only these have crossed the wire.
            summed = tf.scatter_nd(rows[:, None], summed, tf.cast(target.shape, tf.int64))
            rows = None
        if rows is None:
            fused = fused_update(optimizer, variable, part, summed, rate)
            if fused is not None:
                return [fused]
        recorder = UpdateRecorder(optimizer, variable, part, rows, values)
        with recording(optimizer, recorder):
            _decay(optimizer, recorder, rate)
            optimizer.update_step(summed, recorder.target, rate)
            constraint = getattr(variable, "constraint", None)
            if constraint is not None:
                recorder.assign(recorder.target, constraint(recorder.target.value))
            _average(optimizer, variable, recorder)
        return [variables.add(one, delta, rows) for one, delta in recorder.changes()]

    return Work(device=target.device, inputs=inputs, run=run)


def fused_update(
    optimizer: Any, variable: Any, part: int, gradient: tf.Tensor, rate: tf.Tensor
) -> tf.Operation | None:
    """The update of a dense variable by one op of TensorFlow's; None where there is none for it.

    No copies, and slots under the same lock: `use_locking` makes two of them on the same variables
    come one after the other. The ops compute what Keras's `update_step` does. Adam's is not among
    them: ResourceApplyAdam takes 1 - beta_2 in float32, which is wrong by 5e-5, and so are its
    steps. `part` is the number of the shard that the gradient is of, from 0.
    """
    target = variables.parts(variable)[part]
    plain = type(optimizer) is keras.optimizers.SGD and not (
        optimizer.weight_decay or optimizer.use_ema or getattr(variable, "constraint", None)
    )
    if not plain or not target.dtype == gradient.dtype in (tf.float32, tf.float64):
        return None
    rate = tf.cast(rate, target.dtype)
    if not optimizer.momentum:
        return tf.raw_ops.ResourceApplyGradientDescent(
            var=target.handle, alpha=rate, delta=gradient, use_locking=True
        )
    momentum = optimizer.momentums[optimizer._get_variable_index(variable)]
    return tf.raw_ops.ResourceApplyKerasMomentum(
        var=target.handle,
        accum=variables.parts(momentum)[part].handle,
        lr=rate,
        grad=gradient,
        momentum=tf.cast(optimizer.momentum, gradient.dtype),
        use_locking=True,
        use_nesterov=optimizer.nesterov,
    )


def _decay(optimizer: Any, recorder: UpdateRecorder, rate: tf.Tensor) -> None:
    decays = optimizer.weight_decay is not None
    if decays and optimizer._use_weight_decay(variables.raw(recorder.target.variable)):
        value = recorder.target.value
        factor = tf.cast(optimizer.weight_decay, value.dtype) * tf.cast(rate, value.dtype)
        recorder.assign_sub(recorder.target, value * factor)


def _average(optimizer: Any, variable: Any, recorder: UpdateRecorder) -> None:
    if not optimizer.use_ema:
        return
    average = optimizer._model_variables_moving_average[optimizer._get_variable_index(variable)]
    old = recorder.get_current_value(average)
    # The average begins with the first step's weights (keras 3.15, base_optimizer.py).
    is_first = tf.equal(recorder.get_current_value(optimizer.iterations), 0)
    share = tf.where(is_first, tf.ones([], old.dtype), 1 - optimizer.ema_momentum)
    recorder.assign_add(average, (recorder.target.value - old) * share)


def _shared(optimizer: Any, known: Any) -> list[Work]:
    """What an optimizer keeps for all variables together: Nadam's product of its betas."""
    product = getattr(optimizer, "_u_product", None)
    if product is None:
        return []
    beta, step = optimizer.beta_1, tf.cast(known[id(optimizer.iterations)] + 1, product.dtype)
    old = known[id(product)]
    new = old * beta * (1.0 - 0.5 * tf.pow(tf.cast(0.96, product.dtype), step))
    known[id(product)] = new
    target = product._value
    return [
        Work(device=target.device, inputs=[new - old], run=lambda d: [variables.add(target, d)])
    ]


def unique_rows(gradient: tf.IndexedSlices) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums the slices of each row; returns them and the rows, int64."""
    flat = tf.reshape(gradient.indices, [-1])
    rows, place = tf.unique(tf.cast(flat, tf.int64))
    values = tf.reshape(gradient.values, tf.concat([[-1], tf.shape(gradient.values)[1:]], 0))
    summed = tf.math.unsorted_segment_sum(values, place, tf.size(rows))
    summed.set_shape([None, *gradient.values.shape[1:]])
    return summed, rows


def _clip(optimizer: Any, gradients: Sequence[Any]) -> list[Any]:
    """The optimizer's own clipping, of shards as of one gradient."""
    if not (optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue):
        return list(gradients)
    # Rows that occur twice count as their sum, as in a dense gradient.
    exact = [_summed(gradient) for gradient in gradients]
    if optimizer.clipvalue:
        low, high = -optimizer.clipvalue, optimizer.clipvalue
        return [_on_values(lambda v: tf.clip_by_value(v, low, high), g) for g in exact]
    norms = [_norm(gradient) for gradient in exact]
    if optimizer.global_clipnorm:
        norms = [tf.sqrt(tf.add_n([tf.square(norm) for norm in norms]))] * len(norms)
    bound = optimizer.clipnorm or optimizer.global_clipnorm
    scaled = []
    for gradient, norm in zip(exact, norms, strict=True):
        factor = bound / tf.maximum(norm, bound)
        scaled.append(_on_values(lambda v, f=factor: v * tf.cast(f, v.dtype), gradient))
    return scaled


def _on_values(function: Callable[[tf.Tensor], tf.Tensor], gradient: Any) -> Any:
    """The gradient with `function` of its values; of one in shards, with that of each."""
    if isinstance(gradient, ShardGradients):
        pieces = (None if piece is None else _on_values(function, piece) for piece in gradient)
        return ShardGradients(pieces)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(function(gradient.values), gradient.indices, gradient.dense_shape)
    return function(gradient)


def _summed(gradient: Any) -> Any:
    """The gradient with each row once."""
    if isinstance(gradient, ShardGradients):
        return ShardGradients(None if piece is None else _summed(piece) for piece in gradient)
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values, rows = unique_rows(gradient)
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _norm(gradient: Any) -> tf.Tensor:
    pieces = gradient if isinstance(gradient, ShardGradients) else [gradient]
    squares = [
        tf.reduce_sum(tf.square(p.values if isinstance(p, tf.IndexedSlices) else p))
        for p in pieces
        if p is not None
    ]
    return tf.sqrt(tf.add_n(squares))


def _check(optimizer: Any, trainable: Sequence[Any]) -> None:
    """Refuses what asynchronous updates, or those of shards, have no meaning for.

    Raises:
      TfrunError: TFRUN-505.
    """
    feature, fix = "", "Leave it out"
    if optimizer.gradient_accumulation_steps:
        feature = "gradient_accumulation_steps"
    elif optimizer.use_ema and optimizer.ema_overwrite_frequency:
        feature = "ema_overwrite_frequency"
    elif (
        isinstance(optimizer, loss_scale_optimizer.LossScaleOptimizer)
        or optimizer.loss_scale_factor
    ):
        feature = "loss scaling (mixed_float16)"
        fix = "Take mixed_bfloat16, or compile with auto_scale_loss=False"
    elif type(
        optimizer
    )._backend_update_step is not TFOptimizer._backend_update_step and not hasattr(
        optimizer, "_u_product"
    ):
        feature = f"the optimizer {type(optimizer).__name__}"
    if feature:
        raise TfrunError(
            "TFRUN-505",
            f"{feature} does not work with parameter servers: each worker has its own time",
            where="model.compile",
            fix=f"{fix}, or train with tfrun.strategy('multi_worker') without --ps",
        )
    sharded = next((v for v in trainable if variables.is_sharded(v)), None)
    if isinstance(optimizer, _WHOLE) and sharded is not None:
        raise TfrunError(
            "TFRUN-505",
            f"the optimizer {type(optimizer).__name__} updates each variable as a whole, and "
            f"{sharded.path!r} is in shards",
            where="model.compile",
            fix="Leave out variable_partitioner, or use SGD, Adam, Adagrad, RMSprop or Ftrl",
        )
