"""A worker without TensorFlow that stays when a peer goes: it speaks the channel, and counts steps.

`python toy_worker.py FD PARENT`. What it does is in files of $TOY: `life` is what each process has
come to, a line each; `steps` is where training is; `call` is the number of the `fit`; `finish` ends
it. `cannot` has workers leave,
`fails` has successors end, `slow` are the seconds that one needs.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import time
from pathlib import Path
from typing import NoReturn

from tfrun.job import reports
from tfrun.job.settings import settings
from tfrun.process import channel, lineage, progress

TOY = Path(os.environ["TOY"])
STEP_SECONDS = 0.01


def note(what: str, **more: object) -> None:
    here = {"round": int(os.environ["TFRUN_ROUND"]), "rank": int(os.environ["RANK"])}
    size, config = int(os.environ["WORLD_SIZE"]), json.loads(os.environ["TF_CONFIG"])
    line = {"pid": os.getpid(), "what": what, "time": time.time(), **here, "size": size}
    line |= {"task": settings().task, "key": settings().collective_key, **more}
    line["workers"] = config["cluster"].get("worker", [])
    with (TOY / "life").open("a") as file:
        file.write(json.dumps(line) + "\n")


class Worker:
    def __init__(self) -> None:
        self.words: queue.Queue[str] = queue.Queue()
        for word in ("leave", "regroup", "round", "release", "save"):
            channel.when(word, lambda word=word: self.words.put(word))
        self.step, self.leaves, self.made, self.call = 0, 0, 0, 0
        own = progress.own()
        assert own is not None
        self.progress = own

    def live(self) -> NoReturn:
        note("begins", rehearses=settings().rehearses, call=settings().rehearses_call)
        print(f"{os.getpid()} begins", flush=True)
        if settings().rehearses:
            self.rehearse()
        elif (TOY / "steps").exists():
            self.step = int((TOY / "steps").read_text())
            channel.emit(reports.Resumed(key=[self.call, 0, self.step], step=self.step))
        self.progress.begins()
        can = not (TOY / "cannot").exists()
        channel.emit(reports.CanStay(can=can, why="" if can else "it was told so"))
        while True:
            self.train()

    def rehearse(self) -> None:
        if (TOY / "fails").exists():
            print("it was told to fail", file=sys.stderr, flush=True)
            os._exit(3)
        self.call = settings().rehearses_call
        slow = TOY / "slow"
        time.sleep(float(slow.read_text()) if slow.exists() else 0.1)
        channel.emit(reports.Ready())
        self.wait()

    def train(self) -> None:
        if (TOY / "finish").exists():
            self.finish()
        self.progress.step_begins()
        try:
            word = self.words.get(timeout=STEP_SECONDS)
        except queue.Empty:
            return self.make_step()
        if word == "save":
            channel.emit(reports.StateSaved(step=self.step))
        if word == "leave":
            self.leaves += 1
        if word in ("leave", "regroup"):
            if (TOY / "cannot").exists():
                self.leave()
            channel.emit(reports.Stayed(key=[self.call, 0, self.step], step=self.step))
            self.wait()

    def make_step(self) -> None:
        said = (TOY / "call").read_text() if (TOY / "call").exists() else ""
        if said and self.call != int(said):  # nothing: it is just being written
            self.call, self.made = int(said), 0
        self.step, self.made = self.step + 1, self.made + 1
        self.progress.step_returned(self.step)
        if self.made == 1:
            key = [self.call, 0, self.step]
            channel.emit(reports.FirstStep(key=key, step=self.step))
            note("steps", step=self.step)
            print(f"{os.getpid()} steps", flush=True)

    def wait(self) -> None:
        """Waits for a place; the second "leave" of a round says that there is none."""
        self.progress.other()
        while (word := self.words.get()) != "round":
            self.leaves += word == "leave"
            if self.leaves >= 2 or (word == "leave" and settings().rehearses):
                self.leave()
        told = json.loads(channel.text_of("round"))
        os.environ.update(told["environment"])
        settings.cache_clear()
        assert str(told["number"]) == os.environ["TFRUN_ROUND"]
        assert told["settings"]["task"] == settings().task
        assert not settings().rehearses
        if not self.step and (TOY / "steps").exists():
            self.step = int((TOY / "steps").read_text())
        self.leaves, self.made = 0, 0
        note("placed")

    def leave(self) -> NoReturn:
        (TOY / "steps").write_text(str(self.step))
        note("leaves", step=self.step)
        channel.emit(reports.SnapshotTaken(key=[self.call, 0, self.step], step=self.step))
        channel.emit(reports.Error(type="UnavailableError", message="a peer has left"))
        os._exit(1)

    def finish(self) -> NoReturn:
        channel.emit(reports.Done(collectives=7))
        while self.words.get() != "release":
            pass
        note("ends", step=self.step)
        os._exit(0)


if __name__ == "__main__":
    lineage.die_with_parent(int(sys.argv[2]))
    channel.open_channel(int(sys.argv[1]))
    Worker().live()
