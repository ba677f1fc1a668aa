"""The ledger: which samples each step of training has consumed, written as it happens.

A worker writes one file a round, `ledger/<job>-<round>-<rank>.jsonl` in the run directory, of these
kinds of JSON lines:

    {"pass": 0, "data": "data0", "samples": 60000, "batch": 256, "seed": 1, "shuffle": true,
     "by": "sample", "rank": 1, "size": 2, "call": 0, "epoch": 0, "step": 0, "skip": 0,
     "how": "next", "left": [0, 0, 0]}
    {"pass": 0, "epoch": 0, "step": 0, "begin": 128, "count": 128, "taken": 234, "done": 233}

The first says who reads which data, from where on, in which training of the script; (seed, shuffle)
is the key of the permutation, and `skip` how many samples of the first step's batch an earlier
round has trained, in batches of another size. The other says that this worker's samples of step 0
stand at the positions [128, 256) of epoch 0's order, those of step 1 one batch further, and so on
for `taken` steps, of which `done` are over. A step is noted before it is trained, so that no step
can have changed the weights, on any worker, without all workers' notes of it; which of the steps
are in the weights is told by where the next round goes on (see proof.py). Lines have a fixed
width and the last one is written over, so that a step costs one system call and an epoch about two
lines.
A line {"not covered": "…"} says that data is read of which there are no such lines, and
{"left out": 17, "source": 0} that sample 17 of the script's first source with `on_error="skip"`
could not be read; passes of that source have "tolerant": 0 in their first line.
The first line of a file is {"lacks": ""}. On a full disk it says why lines are missing, for as
long as they are: they wait for room, and a worker that dies meanwhile takes them along.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from tfrun.data.order.position import Position
from tfrun.data.order.shards import Replicas
from tfrun.job.record import Record
from tfrun.job.settings import settings
from tfrun.job.world import world

FOLDER = "ledger"
LACKS, NOTE, LEFT_OUT = "lacks", "not covered", "left out"
WIDTH = 128  # divides a page: the system writes such a line as a whole
MOST_STEPS = 10**9  # of a line; a count is written with ten digits

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW

How = Literal["next", "sought", "resumed", "passed"]

_log = logging.getLogger("tfrun")
_open: dict[str, _File] = {}
_unsettled: set[Tape] = set()
_call, _is_done = -1, False
_training = True


class _File:
    """This worker's file of this round; on a full disk its lines wait, and the job goes on."""

    def __init__(self, path: Path) -> None:
        self._end, self._fd, self.passes, self.notes = 0, -1, 0, set[str]()
        self._lock = threading.Lock()  # samples are left out by the threads that read
        self._waiting: dict[int, bytes] = {}  # by place: an epoch has about two lines
        self._path, self._reason, self._is_closed = path, "", False
        self.add(_fill(json.dumps({LACKS: ""})))  # its place is there when there is room no more

    def add(self, line: bytes) -> int:
        """Appends a line and returns its place."""
        with self._lock:
            place = self._end
            self._end += len(line)
        self.put(line, place)
        return place

    def put(self, line: bytes, place: int) -> None:
        """Writes a line at its place, after those that wait for room."""
        with self._lock:
            if self._is_closed:
                return
            self._waiting[place] = line
            try:
                if self._fd < 0:
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    self._fd = os.open(self._path, _FLAGS, 0o666)
                for at in sorted(self._waiting):  # in order, so that none stands behind a hole
                    _write(self._fd, self._waiting[at], at)
                    del self._waiting[at]
            except OSError as error:
                self._lacks(error.strerror or str(error))
            else:
                self._lacks("")

    def close(self) -> None:
        """Nothing is written any more."""
        self._is_closed = True
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _lacks(self, reason: str) -> None:
        """Says so in the first line, and to a person when it begins."""
        if bool(reason) == bool(self._reason):
            return
        self._reason = reason
        if reason:
            _log.warning("the ledger is not written for now: %s", reason)
        else:
            _log.warning("the ledger is written again, and lacks nothing")
        with contextlib.suppress(OSError):  # there is no file, or not even this line
            if self._fd >= 0 and 0 not in self._waiting:
                _write(self._fd, _fill(json.dumps({LACKS: reason})), 0)


def _write(fd: int, line: bytes, place: int) -> None:
    if os.pwrite(fd, line, place) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Header(Record):
    """The first line of a pass; see `open_tape` and the beginning of this file."""

    data: str
    samples: int
    batch: int
    seed: int
    shuffle: bool
    by: str
    rank: int
    size: int
    call: int
    epoch: int
    step: int
    skip: int = 0
    how: str
    left: list[int]
    trains: bool
    tolerant: int | None = None


class Tape:
    """Writes one worker's part of one pass; does nothing without a file.

    Args:
      dataset: what is read: `share(step, replicas)` and `batch_size`.
      replicas: this worker's.
      file: where to write.
      header: what is known of the pass.
    """

    def __init__(
        self,
        dataset: Any = None,
        replicas: Any = None,
        file: _File | None = None,
        header: Header | None = None,
    ) -> None:
        self._dataset, self._replicas, self._file = dataset, replicas, file
        self._line: dict[str, int] = {}
        self._head, self._place = "", 0
        if file is not None:
            self._number, file.passes = file.passes, file.passes + 1
            known = {name: value for name, value in vars(header).items() if value is not None}
            file.add(_fill(json.dumps({"pass": self._number, **known}, separators=(",", ":"))))

    def taken(self, epoch: int, step: int, skip: int = 0) -> None:
        """Notes that a step is about to be trained; all before it are over.

        Args:
          epoch: from 0.
          step: of the epoch, from 0.
          skip: samples at its batch's beginning that it lacks.
        """
        if self._file is None:
            return
        _unsettled.add(self)
        begin, end = self._dataset.share(step, self._replicas, skip)
        line = self._line
        if line:
            line["done"] = line["taken"]
            number = step - line["step"]
            next_begin = line["begin"] + number * self._dataset.batch_size
            follows = (epoch, begin, end - begin) == (line["epoch"], next_begin, line["count"])
            if follows and number == line["taken"] < MOST_STEPS:
                line["taken"] += 1
                self._write()
                return
            self._write()
        self._line = {"epoch": epoch, "step": step, "begin": begin, "count": end - begin}
        head = json.dumps({"pass": self._number, **self._line}, separators=(",", ":"))
        self._head = head.removesuffix("}")
        self._line |= {"taken": 1, "done": 0}
        self._place = self._file.add(self._text())

    def settle(self) -> None:
        """Notes that all steps that were taken are over."""
        _unsettled.discard(self)
        if self._file is not None and self._line and self._line["done"] < self._line["taken"]:
            self._line["done"] = self._line["taken"]
            self._write()

    def _write(self) -> None:
        assert self._file is not None
        self._file.put(self._text(), self._place)

    def _text(self) -> bytes:
        taken, done = self._line["taken"], self._line["done"]
        return _fill(f'{self._head},"taken":{taken:10},"done":{done:10}}}')


def training_begins(call: int) -> None:
    """From now on data is read for the script's training `call`, counted from 0."""
    global _call, _is_done
    _call, _is_done = call, False


def training_is_done() -> None:
    """This training's result comes from an earlier round; if it is done again it does not count."""
    global _is_done
    _is_done = True


def round_is_over() -> None:
    """The next round of this process has a file of its own; what was taken in vain stays so."""
    _unsettled.clear()
    while _open:
        _open.popitem()[1].close()


def settle() -> None:
    """A training has ended as it should: what its steps were given has been trained on."""
    for tape in tuple(_unsettled):
        tape.settle()


def open_tape(
    dataset: Any,
    place: Position,
    replicas: Replicas | None = None,
    *,
    how: How = "next",
    left: Position | None = None,
    trains: bool = True,
) -> Tape:
    """Returns the tape of a pass that begins at `place`; written in a job with a ledger.

    Args:
      dataset: the data, a `tfrun.Dataset`.
      place: the first step that will be read.
      replicas: this worker's; None for one replica on each.
      how: "next" after what was read before, "sought" by the script, "resumed" where an earlier
        round was cut off, or "passed": the script's earlier run has finished this training.
      left: where the data stood before; the steps from there to `place` are left out on purpose.
      trains: whether a `fit` or a `TrainState` reads, which goes on where it was after a failure.
    """
    file = _file()
    if file is None:
        return Tape()
    if dataset.is_by_file:
        not_covered(f'{dataset.name}, shard="FILE"', "leave `shard` out")
        return Tape()
    here, left = world(), left or place
    rank, size = here.rank, here.size
    if replicas is not None and replicas.total != here.replicas:  # several devices have one each
        rank, size = replicas.first // replicas.count, replicas.total // replicas.count
    header = Header(
        **dataset.described(),
        rank=rank,
        size=size,
        call=_call,
        epoch=place.epoch,
        step=place.step,
        skip=place.skip,
        how="passed" if _is_done else how,
        left=[left.epoch, left.step, left.skip],
        trains=trains,
    )
    made = Tape(dataset, replicas, file, header)
    return Tape() if _is_done else made


@contextlib.contextmanager
def not_trained_on() -> Iterator[None]:
    """While it lasts, data is opened that `evaluate` or `predict` reads, which no ledger has."""
    global _training
    _training = False
    try:
        yield
    finally:
        _training = True


def not_covered(what: str, instead: str) -> None:
    """Notes that data is read of which this ledger proves nothing; once a round.

    Args:
      what: the data, and how it is read.
      instead: what to do so that it is covered.
    """
    file = _file() if _training else None
    note = f"{what}: {instead}"
    if file is not None and note not in file.notes:
        file.notes.add(note)
        file.add(_fill(json.dumps({NOTE: note})))


def left_out(source: int, index: int) -> None:
    """Notes that a sample could not be read and is in no batch.

    Args:
      source: which of the script's sources with `on_error="skip"`, from 0.
      index: of the sample.
    """
    file = _file()
    if file is not None:
        file.add(_fill(json.dumps({LEFT_OUT: index, "source": source})))


def _file() -> _File | None:
    run_dir, number = settings().run_dir, settings().ledger
    if not run_dir or not number or settings().rehearses:
        return None
    here = world()
    name = f"{number:04}-{here.round:05}-{here.rank:05}.jsonl"
    path = str(Path(run_dir, FOLDER, name))
    if path not in _open:
        _open[path] = _File(Path(path))
    return _open[path]


def _fill(text: str) -> bytes:
    """The line, filled up with spaces to a multiple of the width."""
    raw = text.encode()
    return raw.ljust(-(-(len(raw) + 1) // WIDTH) * WIDTH - 1) + b"\n"
