"""The process of a launched job: the command `tfrun`, which ends when who has called it does.

Its standard input is a pipe in which nothing comes: it closes when the caller's process ends,
however that may be.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import click

from tfrun.cli.job_variables import unknown
from tfrun.cli.main import VERBS, run
from tfrun.job import files
from tfrun.job.errors import TfrunError

LOOK_SECONDS = 1.0  # at the caller, in case that a fork of it keeps the pipe open
SIGNALS = 3  # Ctrl-C's, after which it ends without more ado
BETWEEN_SECONDS = 10.0
REFUSED = "refused.pkl"  # the error with which it has not even begun


def main() -> None:
    """`sys.argv[1]` is JSON: {"folder", "words": [command line], "caller": pid}."""
    told = json.loads(sys.argv[1])
    folder, gone = Path(told["folder"]), threading.Event()
    # A program that runs in a shell's background has handed on that Ctrl-C is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    watch = threading.Thread(target=_watch, args=(told["caller"], folder, gone), daemon=True)
    watch.start()
    code = 130
    try:
        for text in unknown(os.environ, run, VERBS):
            print(f"tfrun: {text}", file=sys.stderr, flush=True)
        code = _run(told["words"], folder)
    finally:
        if gone.is_set():
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(code)
    sys.exit(code)


def _run(words: list[str], folder: Path) -> int:
    try:
        return run.main(args=words, prog_name="tfrun", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except TfrunError as error:
        with files.whole(folder / REFUSED) as temporary:
            temporary.write_bytes(pickle.dumps(error))
        return error.exit_code


def _watch(caller: int, folder: Path, gone: threading.Event) -> None:
    """Ends the job, as by Ctrl-C, when its caller is not there any more."""
    while os.getppid() == caller:
        ready, _, _ = select.select([0], [], [], LOOK_SECONDS)
        if ready and not os.read(0, 1):
            break
    gone.set()
    nowhere = os.open(os.devnull, os.O_RDWR)  # nobody reads what it says, and a write would fail
    for fd in (1, 2):
        os.dup2(nowhere, fd)
    for _ in range(SIGNALS):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(BETWEEN_SECONDS)
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
    os._exit(130)
