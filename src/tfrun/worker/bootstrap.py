"""Runs one worker, from its fresh process (fork or exec) to `os._exit`."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.first_failure import is_peer_error
from tfrun.job.settings import settings
from tfrun.job.spec import Program
from tfrun.job.world import can_do_with_one, world
from tfrun.process import channel, memory, sigterm, stacks
from tfrun.process.files import install as script_files
from tfrun.process.peers_left import PeersLeft
from tfrun.worker import asked_place, chief_watch, script

PEER_ERROR_SECONDS = 1.0


def live(task: Mapping[str, Any]) -> NoReturn:
    """Runs a task and ends the process.

    Args:
      task: "runs" ("script" or "server"), "program" (target, is_module, args) and
        "environment", which replaces the process's own. The channel is open already.
    """
    os.environ.clear()
    os.environ.update(task["environment"])
    settings.cache_clear()
    for stream in (sys.stdout, sys.stderr):
        # Live logs: a pipe would be block-buffered and show a step minutes later.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if logging.lastResort:
        logging.lastResort.setFormatter(Signed())
    error: BaseException | None = None
    try:
        stacks.write_on_crash()
        sigterm.listen()
        if task["runs"] == "server":
            from tfrun.ps.server_process import serve

            serve(chief_watch.for_this_process())
        else:
            mine = settings()
            if mine.trial and mine.trial.memory:
                memory.limit(mine.trial.memory)
            _seed(mine.seed, deterministic=mine.deterministic)
            _listen()
            stacks.write_on_signal()
            script_files.install()
            if mine.in_place == "auto":
                asked_place.watch()
            script.run(Program(**{**task["program"], "args": tuple(task["program"]["args"])}))
    except BaseException as raised:
        error = raised
    _leave(error)


class Signed(logging.Formatter):
    """What Python shows of a warning where the script says nothing about logging: whose it is."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return f"tfrun: {text}" if record.name == "tfrun" else text


def _leave(error: BaseException | None) -> NoReturn:
    """Ends as the interpreter would: message, threads, atexit, flush; then the barrier."""
    report = None
    lines = sys.modules.get("tfrun.engine.script_lines")  # none of these where nothing is trained
    calls = sys.modules.get("tfrun.engine.script_calls")
    where = lines.where(error) if lines and error is not None else ""
    runs_again = isinstance(error, PeersLeft)
    if isinstance(error, PeersLeft):
        error = error.__cause__
    if error is not None:
        # It says whom this worker has waited for in vain, where that is what it is.
        explained: BaseException = calls.explained(error) if calls else error
        script.trim(explained)
        error, report = explained, replace(script.describe(explained), where=where)
    if isinstance(error, TfrunError) and can_do_with_one(error.code):
        _leave_for_one_replica_each(f"{error.what} ({error.code})")
    follows = report is not None and is_peer_error(report.type, report.message)
    if report and follows:
        # A custom loop has nobody who would have kept its state on the way up.
        runs_again = _keep_state() or runs_again
        # A consequence of another worker's end, which is the news. The agent keeps what we are
        # about to print off the terminal; it has to know before we print.
        channel.emit(report)
        channel.wait_for("go", PEER_ERROR_SECONDS)
    code = script.exit_code(error)
    if code == 0:
        _end_trainings()
    _flush()
    if runs_again:
        os._exit(code)  # the next round waits for us, and tidying is for those who have ended
    if code != 0 and report and not follows:
        # After the message is out, but before the tidying: the peers are told at once.
        channel.emit(report)
    _run_exit_handlers()
    script_files.close_all()
    _flush()
    if code == 0:
        # A worker that left early would take a peer's last collective with it, or all that the
        # others need rank 0 for. All leave together.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        channel.emit(reports.Done(collectives=calls and calls.last_collective()))
        channel.wait_for("release")
    os._exit(code)


def _leave_for_one_replica_each(reason: str) -> NoReturn:
    """Has the script run again, with one replica on each worker: it is no failure."""
    channel.emit(reports.OneReplicaEach(reason=reason))
    _keep_state()
    channel.emit(reports.Error(type="UnavailableError", message="a peer has left", traceback=""))
    _flush()
    os._exit(1)


def _run_exit_handlers() -> None:
    try:
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # closed by the script, or nobody reads any more


def _keep_state() -> bool:
    """Keeps the state of a `TrainState`; True when there is one, kept or not."""
    leave_round = sys.modules.get("tfrun.state.leave_round")
    try:
        return leave_round is not None and leave_round.keep_state()
    except Exception as error:  # nothing is worse than a worker that does not leave
        sys.excepthook(type(error), error, error.__traceback__)
        return True


def _end_trainings() -> None:
    if leave_round := sys.modules.get("tfrun.state.leave_round"):
        leave_round.script_ended()
    if ledger := sys.modules.get("tfrun.data.ledger.writer"):
        ledger.settle()


def _listen() -> None:
    from tfrun.engine import script_calls
    from tfrun.state import leave_round, save_on_preemption
    from tfrun.train import first_update

    if world().role != "evaluator":
        script_calls.listen()
    leave_round.listen()
    save_on_preemption.listen()
    first_update.watch()


def _seed(seed: int, *, deterministic: bool) -> None:
    """Gives all workers the same random state.

    Keras draws the seeds of its layers from Python's generator, and TensorFlow's sharding
    assumes that every worker shuffles alike: with different seeds workers would hold different
    variables and see samples twice.
    """
    import keras

    from tfrun.patches import random_numbers

    keras.utils.set_random_seed(seed)  # Python's, numpy's and TensorFlow's; it executes no op
    random_numbers.seed_numpy(seed)
    if deterministic:
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
