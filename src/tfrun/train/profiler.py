"""Traces the steps that `tfrun profile` has asked for, with TensorFlow's profiler."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path

from tfrun.job import profile_request, reports
from tfrun.job.settings import settings
from tfrun.process import channel, progress
from tfrun.process.allocator import filling_freed_memory


class Profiler:
    """Begins and ends between two steps; costs a comparison a step while nothing is asked.

    TensorFlow has one profiler in a process, and it does not say what two threads may do with it at
    once: models that train in several threads take turns here.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._request: profile_request.Request | None = None
        self._began: int | None = None
        self._folder, self._step = "", 0
        self._last = ""  # the request that has been taken

    def listen(self) -> None:
        """From now on the agent can ask."""
        channel.when(profile_request.WORD, self._asked)

    def step_done(self, step: int) -> None:
        """Takes the news that a step is over, so many in the whole training."""
        if self._request is not None:
            with self._turn, progress.pausing():
                self._step = step
                request = self._request
                if request is None:
                    return  # another thread has ended it
                if self._began is None and step >= request.first:
                    self._begin(request, step)
                elif self._began is not None and step >= self._began + request.steps:
                    self._end(request, step)

    def closes(self) -> None:
        """The training is over, also in the middle of a profile."""
        with self._turn:
            request = self._request
            if request is not None and self._began is not None:
                self._end(request, self._step)
            elif request is not None:
                self._answer(request, request.first, request.first, "the training was over before")

    def _asked(self) -> None:
        state = settings().state_path
        request = profile_request.read(state) if state else None
        # The channel repeats to a second training what was said to the first one.
        if request is not None and self._request is None and request.name != self._last:
            self._request, self._last = request, request.name

    def _begin(self, request: profile_request.Request, step: int) -> None:
        import tensorflow as tf

        self._folder = tempfile.mkdtemp(prefix="tfrun-profile-")
        try:
            # The tracing of Python slows a step down by more than what is of interest.
            options = tf.profiler.experimental.ProfilerOptions(python_tracer_level=0)
            tf.profiler.experimental.start(self._folder, options)
        except Exception as error:  # the script profiles by itself; no CUPTI; …
            self._answer(request, step, step, str(error))
        else:
            self._began = step

    def _end(self, request: profile_request.Request, step: int) -> None:
        import tensorflow as tf

        began, problem = self._began or 0, ""
        try:
            with filling_freed_memory():
                tf.profiler.experimental.stop()
            _collect(Path(self._folder), request.traces)
        except Exception as error:
            problem = str(error)
        self._answer(request, began, step, problem)

    def _answer(
        self, request: profile_request.Request, first: int, last: int, problem: str
    ) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._request, self._began, self._folder = None, None, ""
        channel.emit(reports.Profiled(name=request.name, first=first, last=last, problem=problem))


def _collect(found: Path, traces: Path) -> None:
    """Moves the trace to the others'; TensorFlow names it by the host, which several share.

    Raises:
      FileNotFoundError: nothing was traced.
      OSError: it cannot be written.
    """
    files = sorted(found.rglob("*.xplane.pb"))
    if not files:
        raise FileNotFoundError("TensorFlow has written no trace")
    traces.mkdir(parents=True, exist_ok=True)
    name = (settings().task or "worker").replace(":", "-")
    shutil.move(files[-1], traces / f"{name}.xplane.pb")


own = Profiler()
