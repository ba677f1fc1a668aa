"""`tfrun.launch` in real jobs: from pytest, from a program, and from a Jupyter kernel."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from jupyter_client.manager import KernelManager

import tfrun
from conftest import MARK, Jobs, marked, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
WAITS = """
import pathlib, time, tfrun
def forever():
    pathlib.Path(f"here-{tfrun.world().rank}").touch()
    time.sleep(600)
tfrun.launch(forever)
"""
GRAPH = """
import sys
def sign(value):
    if value > 0:
        return value * 0 + 1
    return value * 0 - 1
def graph():
    import tensorflow as tf
    return [int(tf.function(sign)(tf.constant(n))) for n in (3, -3)]
print(tfrun.launch(graph, workers=1), "tensorflow" in sys.modules)
"""


class Found(Exception):
    """An exception of this module's own."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(rank, text)
        self.rank = rank


def left(folder: Path) -> list[Path]:
    """What is only there while a function runs."""
    return list(folder.glob("tfrun-runs/*/launch-*"))


@pytest.fixture
def here(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Jobs that this process launches are watched as those of `jobs` are."""
    monkeypatch.chdir(jobs.directory)
    for name in [name for name in os.environ if name.startswith("TFRUN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(MARK, jobs.environment[MARK])
    yield jobs.directory
    assert not left(jobs.directory)


def test_what_the_chief_returns_comes_back(here: Path, capsys: pytest.CaptureFixture) -> None:
    class Place:
        def __init__(self, rank: int, size: int, said: str) -> None:
            self.rank, self.size, self.said = rank, size, said

    def places(flag: Path, *, times: int) -> list[Place]:
        world = tfrun.world()
        print("this is", world.rank)
        if world.rank == 1 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            tfrun.launch(places)
        except tfrun.TfrunError as error:
            return [Place(world.rank, world.size, error.code)] * times
        return []

    value = tfrun.launch(places, (here / "died",), {"times": 2}, workers=2, run_dir="runs/a")
    assert [type(each) for each in value] == [Place, Place]  # the class that was sent
    assert (value[0].rank, value[0].size, value[0].said) == (0, 2, "TFRUN-122")
    captured = capsys.readouterr()
    assert "this is 0\n" in captured.out and "this is 1" not in captured.out
    assert "tfrun: places · 2 workers · run directory runs/a\n" in captured.out
    assert re.search(r"tfrun: finished in .* · 1 restart", captured.out), captured.out
    assert "\x1b" not in captured.out
    assert not list((here / "runs" / "a").glob("launch-*"))


@pytest.mark.net
def test_the_first_failure_is_raised(here: Path) -> None:
    def fails() -> None:
        rank = tfrun.world().rank
        if rank == 1:
            raise Found(rank, "is here")
        time.sleep(600)

    with pytest.raises(tfrun.TfrunError, match=r"TFRUN-401: worker 1 failed first.*Found") as e:
        tfrun.launch(fails)
    own = e.value.__cause__
    assert isinstance(own, Found) and own.rank == 1
    text = str(own.__cause__)
    assert "in worker 1:" in text and 'raise Found(rank, "is here")' in text
    assert "launched.py" not in text and "fails.py" not in text  # how it was called
    assert Path(e.value.where).read_text().count("is here") == 2


@pytest.mark.net
def test_what_cannot_come_back_says_so(here: Path) -> None:
    def opens() -> dict[str, Any]:
        return {"log": Path("x").open("w")}

    with pytest.raises(tfrun.TfrunError, match="TFRUN-121") as e:
        tfrun.launch(opens, workers=1)
    assert "its value['log'] is a _io.TextIOWrapper" in str(e.value)


@pytest.mark.net
def test_a_program_that_is_interrupted_leaves_nothing(jobs: Jobs) -> None:
    program = jobs.script(WAITS, "program.py")
    process = subprocess.Popen(
        [sys.executable, str(program)],
        cwd=jobs.directory,
        env=jobs.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until((jobs.directory / "here-1").exists, "the workers run", 60)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert out == b"" and b"tfrun: stopped by SIGINT" in err and b"KeyboardInterrupt" in err
    assert not marked(jobs.environment[MARK])
    assert not left(jobs.directory)


class Kernel:
    """A real one, whose processes are watched as those of `jobs` are."""

    def __init__(self, jobs: Jobs) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(jobs.directory), env=jobs.environment)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def reply(self, message: str, seconds: float) -> dict[str, Any]:
        """What has come of a cell."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                found = self.client.get_shell_msg(timeout=1)
            except queue.Empty:
                continue
            if found["parent_header"].get("msg_id") == message:
                return found["content"]
        pytest.fail(f"no reply within {seconds} s")

    def close(self) -> None:
        self.client.stop_channels()
        if self.manager.is_alive():
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture
def kernel(jobs: Jobs) -> Iterator[Kernel]:
    made = Kernel(jobs)
    yield made
    made.close()


@pytest.mark.net
@pytest.mark.parametrize("end", ["interrupt", "kill"])
def test_a_kernel_that_is_ended_leaves_nothing(jobs: Jobs, kernel: Kernel, end: str) -> None:
    message = kernel.client.execute(WAITS)
    wait_until((jobs.directory / "here-1").exists, "the workers run", 60)
    assert len(marked(jobs.environment[MARK])) > 4 and len(left(jobs.directory)) == 1
    if end == "interrupt":
        kernel.manager.interrupt_kernel()
        reply = kernel.reply(message, 20)
        assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
        assert not left(jobs.directory)
        kernel.manager.shutdown_kernel(now=True)
    else:
        pid = kernel.manager.provisioner.pid  # type: ignore[union-attr]
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not marked(jobs.environment[MARK]), "all processes have ended", 20)
    assert not left(jobs.directory)


@pytest.mark.net
def test_the_example_runs_in_a_real_kernel(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, jobs.environment[MARK])
    notebook = nbformat.read(EXAMPLE, as_version=4)
    # AutoGraph needs the lines of a cell, which only the kernel has.
    notebook.cells.append(nbformat.v4.new_code_cell(GRAPH, id="graph"))
    client = nbclient.NotebookClient(
        notebook,
        timeout=150,
        kernel_name="python3",
        resources={"metadata": {"path": str(jobs.directory)}},
    )
    client.execute()
    cells = {cell["id"]: cell for cell in notebook.cells}

    def text(name: str) -> str:
        return "".join(output["text"] for output in cells[name]["outputs"])

    shown = text("launch")
    assert "tfrun: train · 2 workers" in shown and "Epoch 3/3" in shown
    assert re.search(r"16/16 .* accuracy: 0\.\d+", shown), shown
    assert "tfrun: finished in" in shown
    assert "\x1b" not in shown and "\x08" not in shown
    accuracies = [float(n) for n in re.findall(r"0\.\d+", text("result").splitlines()[0])]
    assert len(accuracies) == 3 and accuracies[2] > accuracies[0]
    assert "(16, 32)" in text("result")
    assert "TFRUN-401 ValueError('this worker does not like its data')" in text("raise")
    assert text("graph").endswith("[1, -1] False\n")
    assert not left(jobs.directory)
