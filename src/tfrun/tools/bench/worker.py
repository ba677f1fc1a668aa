"""What each worker of `tfrun bench` runs, and measures.

`tfrun … -m tfrun.tools.bench.worker SIZES MODEL BATCH STEPS`

Everything is measured between all workers at once; worker 0 reports ("measured", an event).
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import tensorflow as tf

import tfrun
from tfrun.cluster.tf_config import parse_tf_config
from tfrun.collective.collective import Collective
from tfrun.collective.peer_listener import listen
from tfrun.engine import host_collective
from tfrun.engine.communication import RING_BYTES_PER_PACK
from tfrun.job.reports import Measured
from tfrun.process import channel
from tfrun.tools.bench import link
from tfrun.tools.bench.sizes import best_pack, switch_point, times

UNTIMED = 3  # the first call is traced, and the next ones still find their buffers
SWITCHES = tuple(1 << power for power in range(14, 21))  # bytes, 16 KiB to 1 MiB
SWITCH_TIMES, PACK_TIMES = 30, 10
PACKS = (1 << 20, 4 << 20, 16 << 20)
WIDTH = 512  # a layer's weights are 1 MiB


def main(sizes: Sequence[int], model: int, batch: int, steps: int) -> None:
    """Measures, and reports on worker 0.

    Args:
      sizes: of the all-reduces, in bytes.
      model: bytes of the synthetic model's gradients.
      batch: its samples on each worker.
      steps: of it that are timed.
    """
    strategy, world = tfrun.strategy(), tfrun.world()
    sums: list[dict[str, Any]] = []
    rate = small_bytes = pack_bytes = None
    gpus = bool(tf.config.list_physical_devices("GPU"))
    if world.size > 1:
        for size in sizes:
            values = [tf.ones([max(1, size // 4)])]
            seconds = _timed(_all_reduce(strategy, values), times(size))
            sums.append({"bytes": size, "seconds": seconds})
        rate = _link(strategy, world.rank, world.size)
        group = host_collective.current()
        if group is not None:
            small_bytes = _switch(group)
        elif not gpus:
            pack_bytes = _pack(strategy, model)
    step_seconds = _timed(_step(strategy, model, batch), steps)
    if not world.is_chief:
        return
    channel.emit(
        Measured(
            workers=world.size,
            all_reduce=sums,
            link=rate,
            gpus=gpus,
            # The same for one worker alone: what the others take is not what it would have had.
            threads=int(os.environ.get("TF_NUM_INTRAOP_THREADS") or 0),
            small_bytes=small_bytes,
            pack_bytes=pack_bytes,
            step_seconds=step_seconds,
        )
    )


def _timed(call: Callable[[], Any], count: int) -> list[float]:
    """Seconds of each of `count` calls, without the first ones."""
    seconds = []
    for _ in range(UNTIMED + count):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds[UNTIMED:]


def _all_reduce(
    strategy: tf.distribute.Strategy, values: Sequence[tf.Tensor], pack: int | None = None
) -> Callable[[], Any]:
    """An all-reduce that returns once its sums are there.

    `pack`: bytes of what TensorFlow's ring sends as one; None: as the strategy has it.
    """
    options = (
        None
        if pack is None
        else tf.distribute.experimental.CommunicationOptions(bytes_per_pack=pack)
    )

    @tf.function
    def reduce() -> Any:
        def on_replica() -> Any:
            context: Any = tf.distribute.get_replica_context()
            return context.all_reduce("sum", [tf.identity(v) for v in values], options)[0][0]

        return strategy.run(on_replica)

    return lambda: _wait(strategy, reduce())


def _switch(group: Collective) -> int:
    """Up to how many bytes the host collective is faster with sums that go to all at once."""
    kept = group.small_bytes
    measured: list[tuple[int, float, float]] = []
    for size in SWITCHES:
        values = [np.ones(size // 4, np.float32)]
        medians = []
        for small in (0, size):
            group.small_bytes = small
            call = functools.partial(group.all_reduce, values)
            medians.append(median(_timed(call, SWITCH_TIMES)))
        measured.append((size, medians[0], medians[1]))
    group.small_bytes = kept
    return switch_point(measured)


def _pack(strategy: tf.distribute.Strategy, size: int) -> int:
    """The bytes that TensorFlow's ring best sends as one: of tensors of 1 MiB, `size` in all."""
    values = [tf.ones([1 << 18])] * max(1, size >> 20)
    found = {
        pack: median(_timed(_all_reduce(strategy, values, pack), PACK_TIMES)) for pack in PACKS
    }
    return best_pack(found, usual=RING_BYTES_PER_PACK)


def _step(strategy: tf.distribute.Strategy, size: int, batch: int) -> Callable[[], Any]:
    """A training step of Dense layers: gradients of `size` bytes, summed over the workers."""
    count = max(1, size // (4 * WIDTH * WIDTH))
    with strategy.scope():
        weights = [tf.Variable(tf.eye(WIDTH)) for _ in range(count)]
    inputs = tf.ones([batch, WIDTH])

    @tf.function
    def step() -> Any:
        def on_replica() -> Any:
            with tf.GradientTape() as tape:
                x = inputs
                for weight in weights:
                    x = tf.nn.relu(x @ weight)
                loss = tf.reduce_mean(x)
            gradients = tape.gradient(loss, weights)
            context: Any = tf.distribute.get_replica_context()
            sums = context.all_reduce("sum", gradients)
            for weight, total in zip(weights, sums, strict=True):
                weight.assign_sub(1e-6 * total)
            return loss

        return strategy.run(on_replica)

    return lambda: _wait(strategy, step())


def _wait(strategy: tf.distribute.Strategy, value: Any) -> None:
    for one in strategy.experimental_local_results(value):
        np.asarray(one)


def _link(strategy: tf.distribute.Strategy, rank: int, size: int) -> float | None:
    """Bytes per second to the next worker; None where one of the workers cannot say."""
    cluster = parse_tf_config(os.environ["TF_CONFIG"]).cluster
    hosts = [address.host for role in ("chief", "worker") for address in cluster.addresses(role)]
    rate = 0.0
    with listen("") as listening:
        ports = _gathered(strategy, listening.getsockname()[1])
        after = (rank + 1) % size
        try:
            rate = link.bytes_per_second(listening, hosts[after], int(ports[after]))
        except OSError as error:
            print(f"the link to {hosts[after]} was not measured: {error}", file=sys.stderr)
    slowest = min(_gathered(strategy, rate))
    return slowest or None


def _gathered(strategy: tf.distribute.Strategy, value: float) -> list[float]:
    """Every worker's number, in the order of their ranks."""

    @tf.function
    def gather() -> Any:
        def on_replica() -> Any:
            context: Any = tf.distribute.get_replica_context()
            return context.all_gather(tf.constant([value], tf.float64), axis=0)

        return strategy.run(on_replica)

    return [float(x) for x in strategy.experimental_local_results(gather())[0]]


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1].split(",")], *map(int, sys.argv[2:5]))
