"""`fit`, `evaluate` and `predict` of a model that several workers train."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras

from tfrun.data import errors
from tfrun.data.keras import feed, global_batch
from tfrun.data.keras.fit_plan import FitPlan, of_call
from tfrun.data.keras.python_feed import PythonEpochIterator
from tfrun.engine import own_steps, replica, step_clock
from tfrun.engine.agree import check_same_call, mean_over_workers, multi_worker_strategy
from tfrun.engine.local_mode import (
    alone,
    forget_functions,
    in_local_mode,
    refused,
)
from tfrun.job.settings import settings
from tfrun.job.world import may_stay, world
from tfrun.process import channel, progress
from tfrun.process.peers_left import PeersLeft
from tfrun.ps import server_strategy
from tfrun.state import between_trainings
from tfrun.state.fit_session import FitSession, SessionCallback
from tfrun.state.leave_round import keeping_state, leave_if_told
from tfrun.train import (
    callback_kinds,
    evaluator,
    learning_rate,
    loading,
    scaled_batch,
    steps_per_execution,
    sync_checks,
    whole_batches,
)
from tfrun.train.coordination import SharedLogs, SharedStop, Watched
from tfrun.train.fit_report import FitReport, SampleCounter, StepCounter, tell_training
from tfrun.train.same_data import before_call
from tfrun.train.step_meter import StepMeter
from tfrun.train.trial import TrialSteps, running

Method = Callable[..., Any]
_OURS = (
    SharedLogs,
    SharedStop,
    sync_checks.SyncCheck,
    SampleCounter,
    StepCounter,
    FitReport,
    Watched,
    SessionCallback,
    TrialSteps,
)


def run_fit(original: Method, model: keras.Model, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Runs Keras's `fit`, or goes on with one that an earlier run of the script has begun."""
    call = inspect.signature(original).bind(model, *args, **kwargs)
    if world().role == "evaluator":
        return evaluator.run_fit(model, call.arguments)
    on_servers = server_strategy.strategy_of(model) is not None
    strategy = None if on_servers else multi_worker_strategy(model)
    if strategy is not None:
        if in_local_mode():
            raise refused("model.fit")
        check_same_call(strategy)
    trial = None if on_servers or in_local_mode() else running()
    is_apart, script_batch = strategy is None and not on_servers and world().size > 1, None
    if not (on_servers or is_apart or in_local_mode() or (trial is not None and trial.is_timed)):
        script_batch = scaled_batch.scale(model, call.arguments, strategy)
    if trial is not None:
        trial.arrange(call, strategy)
    plan, optimizer = _plan(model, call.arguments, on_servers), getattr(model, "optimizer", None)
    if not on_servers:
        learning_rate.tell_batch(optimizer, plan.reads.batch)
    folder = settings().state_path
    if folder is None or in_local_mode() or is_apart:
        return _fit(original, model, call, plan, strategy, lambda callbacks, _: callbacks)
    meter = StepMeter(step_clock.of(strategy), fetches=True)
    kind = FitSession
    if on_servers:
        from tfrun.ps.server_session import ServerSession as kind  # most jobs have no servers
    session = kind(model, strategy, call, plan, folder, meter)
    verbose = call.arguments.get("verbose", "auto")
    if trial is None:
        session.take_part = functools.partial(callback_kinds.take_chiefs_part, verbose=verbose)
    given = _flat(call.arguments.get("callbacks"))
    if session.is_done:
        history = session.replay(given, functools.partial(_build, original, call, plan))
        if history is not None:
            return history
        if settings().rehearses:
            raise SystemExit("this machine does not hold what the training before has left")
    arrange = session.arrange if trial is None else trial.around(session.arrange)
    with contextlib.ExitStack() as stack:
        if not on_servers:
            tell_training(optimizer, plan.reads, strategy, script_batch)
            stack.enter_context(errors.coded_sharding())
            stack.enter_context(keeping_state())
        as_given = dict(call.arguments)
        while True:
            try:
                go_on = session.go_on_here
                history = _fit(original, model, call, plan, strategy, arrange, go_on)
                session.keep_result(history, given)
                return history
            except (Exception, PeersLeft) as error:
                goes_on = session.goes_on(error) if trial is None else None
                if goes_on is None:
                    if isinstance(error, Exception):
                        session.failed(error)
                    raise
            finally:
                session.close()
            # In another round, with other workers, in this process.
            call.arguments.clear()
            call.arguments.update(as_given)
            before = plan
            plan = _plan(model, call.arguments, on_servers)
            before.again(plan)
            if goes_on.state is not None:
                plan.agreed = goes_on.state.values["agreed"]
                session.stands_apart()
            elif goes_on.waits:
                plan.agreed = before.agreed
            model._eval_epoch_iterator = None
            meter, take_part = StepMeter(step_clock.of(strategy), fetches=True), session.take_part
            session = kind(model, strategy, call, plan, folder, meter, goes_on)
            del goes_on  # with a whole state
            session.take_part, arrange = take_part, session.arrange


def _plan(model: keras.Model, arguments: Mapping[str, Any], on_servers: bool) -> FitPlan:
    """What the call is to do with its data, which is asked here for all that it tells."""
    first, end = arguments.get("initial_epoch", 0), arguments.get("epochs") or 1
    reads = global_batch.reads_of_fit(arguments, on_servers=on_servers)
    # Without an epoch Keras looks at a batch, to build the model.
    make = functools.partial(server_strategy.plan_of, model) if on_servers else FitPlan
    return make(reads=reads, epochs=max(end - first, 1))


def _build(original: Method, call: inspect.BoundArguments, plan: FitPlan) -> None:
    """Has `fit` make all variables and train nothing."""
    nothing = {"epochs": 0, "initial_epoch": 0, "callbacks": [], "verbose": 0}
    empty = inspect.BoundArguments(call.signature, {**call.arguments, **nothing})  # type: ignore[arg-type]
    with plan.runs():
        original(*empty.args, **empty.kwargs)


def _fit(
    original: Method,
    model: keras.Model,
    call: inspect.BoundArguments,
    plan: FitPlan,
    strategy: Any | None,
    arrange: Callable[[list[Any], Callable[[int], int]], list[Any]],
    go_on: Callable[[Exception], None] | None = None,
) -> Any:
    """Runs Keras's `fit` with the callbacks arranged so that all workers stay together."""
    given = _flat(call.arguments.get("callbacks"))
    given += callback_kinds.for_tensorboard(given)
    if strategy is None:
        if channel.is_open() and world().is_chief and not in_local_mode():
            counter, steps = SampleCounter(), StepCounter()
            given += [*_defaults(given, _verbose(call)), counter, steps]
            given.append(FitReport(lambda: counter.samples, steps))
            sees_steps = steps_per_execution.sees_every_step(given)
            plan.pace = steps_per_execution.pace_of(model, None, sees_steps=sees_steps)
            _set_callbacks(call, arrange(given, steps.executed))
        reads = callback_kinds.reads_batch_logs(given)
        reads |= callback_kinds.acts_on_batches(given, callback_kinds.TEST_BATCH)
        with plan.runs(), _logs_of_replicas(model, reads):
            return original(*call.args, **call.kwargs)
    mine = [
        callback_kinds.acts_on_batches(given, callback_kinds.TRAIN_BATCH),
        callback_kinds.acts_on_batches(given, callback_kinds.TEST_BATCH),
        callback_kinds.reads_batch_logs(given),
        steps_per_execution.sees_every_step(given),
        loading.weights_were_noted(),
    ]
    is_new = plan.agreed is None  # else it goes on, and others of its workers are in it already
    plan.agreed = plan.agreed or before_call(strategy, call, mine)
    train, test, global_logs, sees_steps, has_loaded = plan.agreed
    if has_loaded and is_new:
        loading.check_weights(strategy, model)
    plan.pace = steps_per_execution.pace_of(model, strategy, sees_steps=sees_steps)
    wanted = call.arguments.get("verbose", "auto")
    verbose = _verbose(call)
    counter, steps = SampleCounter(), StepCounter()
    flags = {"stop_training": train, "stop_evaluating": test}
    stop = SharedStop(strategy, [flag for flag, acts in flags.items() if acts], counter, go_on)
    callbacks: list[Any] = [callback_kinds.for_this_worker(callback) for callback in given]
    # Whoever may become the chief in the midst of the call has what that needs.
    callbacks += _defaults(given, wanted if may_stay() else verbose)
    if own_steps.has_own(model, own_steps.LOGGING):
        callbacks.insert(0, SharedLogs(strategy))
    if every := settings().sync_check:
        callbacks.append(sync_checks.SyncCheck(every))
    callbacks += [counter, steps, stop]
    if channel.is_open() and (world().is_chief or may_stay()):
        callbacks.append(FitReport(lambda: stop.samples, steps))
    _set_callbacks(call, arrange(callbacks, steps.executed))
    forget_functions(model)
    scope = "global" if global_logs or test else "local"
    with plan.runs(), _step_logs(strategy, scope):
        return original(*call.args, **call.kwargs)


def _defaults(given: list[Any], verbose: Any) -> list[Any]:
    """The callbacks that Keras would append: ours come after them."""
    added: list[Any] = []
    if not any(isinstance(callback, keras.callbacks.History) for callback in given):
        added.append(keras.callbacks.History())
    if verbose != 0 and not any(isinstance(c, keras.callbacks.ProgbarLogger) for c in given):
        added.append(keras.callbacks.ProgbarLogger())
    return added


def run_evaluate(original: Method, model: keras.Model, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Runs `evaluate` on all workers, or in local mode on this one."""
    inside_fit = isinstance(kwargs.get("callbacks"), keras.callbacks.CallbackList)
    of_fit: Any = getattr(model, "_eval_epoch_iterator", None)
    if inside_fit and of_fit is not None:
        of_fit.validates = True
        if isinstance(of_fit, PythonEpochIterator):
            of_fit.draws_in(of_call().orders)

    def run() -> Any:
        result, strategy = _run_loop(original, model, args, kwargs, callback_kinds.TEST_BATCH)
        if strategy is not None and not inside_fit and own_steps.has_own(model, own_steps.LOGGING):
            return mean_over_workers(strategy, result)
        return result

    return _again_when_peers_leave(original, model, args, kwargs, run)


def run_predict(original: Method, model: keras.Model, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Runs `predict` on all workers, or in local mode on this one."""

    def run() -> Any:
        workers = world().size  # whose parts are joined where it is traced
        if getattr(model, "_tfrun_predicts_on", workers) != workers:
            model.predict_function = None
        model._tfrun_predicts_on = workers
        return _run_loop(original, model, args, kwargs, callback_kinds.PREDICT_BATCH)[0]

    try:
        return _again_when_peers_leave(original, model, args, kwargs, run)
    except UnboundLocalError as error:  # Keras's, where there was no batch
        if "batch_outputs" not in str(error):
            raise
        raise errors.empty("model.predict, x") from None


def _again_when_peers_leave(
    original: Method,
    model: keras.Model,
    args: tuple,
    kwargs: dict[str, Any],
    run: Callable[[], Any],
) -> Any:
    """Runs `evaluate` or `predict`, which workers that stay run again when one has gone."""
    strategy = None if in_local_mode() else multi_worker_strategy(model)
    if strategy is None:
        return run()
    given = inspect.signature(original).bind(model, *args, **kwargs).arguments
    data = (given.get(name) for name in ("x", "y", "sample_weight"))
    return between_trainings.stays(strategy, model, run, lambda: feed.reads_again(*data))


def _run_loop(
    original: Method, model: keras.Model, args: tuple, kwargs: dict[str, Any], batch_hooks: tuple
) -> tuple[Any, Any | None]:
    """Returns the result, and the strategy if all workers ran it together."""
    if server_strategy.strategy_of(model) is not None:
        with server_strategy.plan_of(model).runs():
            return original(model, *args, **kwargs), None
    strategy = multi_worker_strategy(model)
    if strategy is None:
        given = _flat(kwargs.get("callbacks"))
        reads = callback_kinds.acts_on_batches(given, batch_hooks)
        with _logs_of_replicas(model, reads):
            return original(model, *args, **kwargs), None
    if in_local_mode():
        with alone(model):
            return original(model, *args, **kwargs), None
    call = inspect.signature(original).bind(model, *args, **kwargs)
    if isinstance(call.arguments.get("callbacks"), keras.callbacks.CallbackList):
        # `fit`'s own: arranged already.
        validate = functools.partial(original, *call.args, **call.kwargs)
        return whole_batches.run_validation(strategy, model, validate), strategy
    check_same_call(strategy)
    verbose = _verbose(call)
    given = _flat(call.arguments.get("callbacks"))
    acts = callback_kinds.acts_on_batches(given, batch_hooks)
    needed = whole_batches.are_needed(call, original)
    decides, needed = before_call(strategy, call, [acts, needed])
    between_trainings.all_came()
    callbacks = [callback_kinds.for_this_worker(callback) for callback in given]
    if verbose != 0 and not any(isinstance(c, keras.callbacks.ProgbarLogger) for c in given):
        callbacks.append(keras.callbacks.ProgbarLogger())
    if watched := progress.own():
        callbacks.insert(0, Watched(watched, leave_if_told))
    if decides:
        flags = ("stop_evaluating", "stop_predicting")
        callbacks.append(SharedStop(strategy, flags, SampleCounter()))
    _set_callbacks(call, callbacks)
    logs = contextlib.nullcontext()
    if batch_hooks is callback_kinds.TEST_BATCH:
        logs = _step_logs(strategy, "global" if decides else "local")
    with logs, progress.as_before(), errors.coded_sharding():
        return whole_batches.run(strategy, call, original, needed), strategy


def _flat(callbacks: Any) -> list[Any]:
    """Returns the user's callbacks as a list; Keras takes one, a nest, or its own container."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        # Used for an earlier `fit`, it still holds what was added then.
        return [callback for callback in callbacks.callbacks if not isinstance(callback, _OURS)]
    return keras.tree.flatten(callbacks) if callbacks else []


def _set_callbacks(call: inspect.BoundArguments, callbacks: list[Any]) -> None:
    given = call.arguments.get("callbacks")
    if isinstance(given, keras.callbacks.CallbackList):
        # A container the user has made keeps its class and identity; its contents are arranged.
        given.callbacks[:] = callbacks
        given.set_model(call.arguments["self"])
        given.set_params(given.params)
    else:
        call.arguments["callbacks"] = callbacks


def _verbose(call: inspect.BoundArguments) -> Any:
    """Returns the verbosity on this worker, and sets it: only the chief shows progress."""
    if not world().is_chief:
        call.arguments["verbose"] = 0
    return call.arguments.get("verbose", "auto")


@contextlib.contextmanager
def _step_logs(strategy: Any, scope: str) -> Iterator[None]:
    """Makes the logs of each step "local" or "global", on all workers alike."""
    before = strategy.step_logs
    strategy.step_logs, strategy.whole_logs = scope, None
    try:
        yield
    finally:
        strategy.step_logs, strategy.whole_logs = before, None


def _logs_of_replicas(model: keras.Model, are_read: bool) -> contextlib.AbstractContextManager:
    """The logs of each step of the only worker: those of all its replicas, where they are read."""
    strategy = model.distribute_strategy
    if not are_read or replica.turns_of(strategy) is None:
        return contextlib.nullcontext()
    return _step_logs(strategy, "global")
