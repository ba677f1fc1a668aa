"""`ParameterServerStrategy`, repaired: slots beside their weights, also those of sharded tables."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.distribute import parameter_server_strategy_v2 as upstream
from tensorflow.python.distribute.sharded_variable import ShardedVariable

from tfrun.data.keras.fit_plan import FitPlan
from tfrun.job.errors import UsageError
from tfrun.job.settings import settings
from tfrun.process import progress


class ParameterServerExtended(upstream.ParameterServerStrategyV2Extended):
    """Everything that is TensorFlow's own, and what tfrun changes in it."""

    _like: ShardedVariable | None = None

    @contextlib.contextmanager
    def colocate_vars_with(self, colocate_with_variable):
        # TensorFlow cannot colocate with a sharded variable: an optimizer's slots would fail.
        if not isinstance(colocate_with_variable, ShardedVariable):
            with super().colocate_vars_with(colocate_with_variable):
                yield
            return
        before, self._like = self._like, colocate_with_variable
        try:
            yield
        finally:
            self._like = before

    def _create_variable(self, next_creator, **kwargs):
        like = self._like
        if like is None:
            return self._mark(super()._create_variable(next_creator, **kwargs))
        initial: Any = kwargs.pop("initial_value")
        given: Any = initial() if callable(initial) else initial
        value = tf.convert_to_tensor(given)
        made, row = [], 0
        name = kwargs.pop("name", None) or "Variable"
        shards: Any = like.variables
        for number, shard in enumerate(shards):
            rows = value[row : row + shard.shape[0]]
            row += shard.shape[0]
            own = {**kwargs, "initial_value": rows, "name": f"{name}/part_{number}"}
            made.append(super()._create_variable(next_creator, colocate_with=shard, **own))
        return self._mark(ShardedVariable(made))

    def _mark(self, variable: Any) -> Any:
        is_sharded = isinstance(variable, ShardedVariable)
        pieces: Any = variable.variables if is_sharded else [variable]
        for piece in pieces:
            piece._tfrun_parameter_server = self._container_strategy()
        return variable


class ParameterServer(upstream.ParameterServerStrategyV2):
    """Asynchronous training on parameter servers, with Keras 3's `fit`.

    Takes the arguments of `tf.distribute.ParameterServerStrategy` and is one.

    Args:
      max_staleness: no gradient of `fit` is applied more than so many updates after the weights
        were read that it was computed from; None for no bound.
    """

    def __init__(
        self,
        cluster_resolver: Any,
        variable_partitioner: Any = None,
        max_staleness: int | None = None,
    ) -> None:
        # A lost server must be heard of at once rather than be waited for:
        # https://www.tensorflow.org/tutorials/distribute/parameter_server_training
        os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
        # A worker's end is an error of many lines, each twice, to a coordinator that goes on with
        # another worker. A person is told in one line by the launcher, which hides information.
        logging.getLogger("tensorflow").addFilter(_as_information)
        with progress.workers_start():
            super().__init__(cluster_resolver, variable_partitioner)
        self.max_staleness = _bound(max_staleness)
        extended = ParameterServerExtended(self, cluster_resolver, variable_partitioner)
        # Upstream's __init__ has made upstream's `extended`.
        self._extended = extended
        distribute_lib.Strategy.__init__(self, extended)

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self.extended._num_workers

    @property
    def servers(self) -> list[str]:
        """The device of each parameter server."""
        count = self.extended._num_ps
        return [f"/job:ps/replica:0/task:{task}/device:CPU:0" for task in range(count)]


def _bound(given: Any) -> int | None:
    """Returns the bound of staleness: what the script says, else the job.

    Raises:
      UsageError: TFRUN-105.
    """
    if given is None:
        return settings().max_staleness
    if isinstance(given, bool) or not str(given).isdecimal():
        raise UsageError(
            "TFRUN-105",
            f"{given!r} is not a number of updates",
            where="tfrun.strategy, max_staleness",
            expected="a whole number from 0",
        )
    return int(given)


def _as_information(record: logging.LogRecord) -> bool:
    if record.pathname.endswith("cluster_coordinator.py"):
        record.msg, record.args = " ".join(record.getMessage().split()), None
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True


def strategy_of(model: Any) -> Any | None:
    """Returns the parameter-server strategy of a model; None when it has another, or none."""
    strategy = getattr(model, "_distribute_strategy", None)
    return strategy if isinstance(strategy, ParameterServer) else None


def plan_of(model: Any, **planned: Any) -> FitPlan:
    """Returns the plan of a call in which an epoch iterator that Keras makes is this model's."""

    def make(strategy: Any, options: dict[str, Any]) -> Any | None:
        from tfrun.ps.keras_epochs import KerasEpochs  # most jobs have no servers

        return KerasEpochs(model, options) if strategy is model.distribute_strategy else None

    return FitPlan(make_iterator=make, **planned)
