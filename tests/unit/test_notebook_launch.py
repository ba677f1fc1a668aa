"""`tfrun.launch` refuses what cannot work, says what it is, and starts and leaves nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tfrun
from tfrun.job.settings import VARIABLE, WorkerSettings
from tfrun.notebook import job_options, outcome
from tfrun.process import sending
from tfrun.worker import launched
from tfrun.worker.launched import FUNCTION, RESULT, error_file

LOCK = threading.Lock()
HOLDS = {"of it": [1, LOCK]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing is made here by a launch that is refused."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    yield
    assert not [path for name in ("tfrun-runs*", "a/b") for path in tmp_path.glob(name)]


def train(epochs: int = 1) -> int:
    return epochs


async def waits() -> int:
    return 1


def yields():
    yield 1


def with_lock() -> None:
    with LOCK:
        pass


def through_others() -> None:
    with_lock()


def test_the_function_stays_one_whatever_is_imported():
    import tfrun.notebook.launch

    assert callable(tfrun.launch) and not isinstance(tfrun.launch, ModuleType)
    assert "launch" in dir(tfrun)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ({"wrokers": 3}, "TFRUN-105", "Perhaps workers is meant"),
        ({"epochs": 3}, "TFRUN-105", "Arguments of the function belong in args or kwargs"),
        ({"workers": 0}, "TFRUN-103", "0 is not a number of workers (in workers)"),
        ({"workers": "many"}, "TFRUN-103", "many"),
        ({"max_restarts": -1}, "TFRUN-105", "max-restarts"),
        ({"max_restarts": [1]}, "TFRUN-105", "max_restarts is [1]"),
        ({"in_place": "yes"}, "TFRUN-105", "True or False"),
        ({"communication": "smoke"}, "TFRUN-105", "communication"),
        ({"checkpoint_every": "x"}, "TFRUN-105", "x"),
        ({"launcher_timeout": 1}, "TFRUN-108", "launcher-timeout"),
        ({"module": True}, "TFRUN-107", "module"),
        ({"rejoin_timeout": 5}, "TFRUN-107", "rejoin-timeout"),  # which the job's process says
        ({"run_dir": "a/b", "rejoin_timeout": 5}, "TFRUN-107", "rejoin-timeout"),
        ({"sync": True}, "TFRUN-107", "directory that all machines share"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_options_are_those_of_the_command_line(options, code, says):
    with pytest.raises(tfrun.TfrunError) as caught:
        tfrun.launch(train, **options)
    assert caught.value.code == code
    assert says in str(caught.value)


def test_options_are_written_as_on_the_command_line(tmp_path):
    given = {
        **{"workers": "1:2", "env": ["A", "B"], "page": True, "fresh": False, "measured": False},
        **{"keep": None, "run_dir": tmp_path, "hang_timeout": 40.5, "ps": np.int64(0)},
        "hosts": ["a:2", "b"],
    }
    words = job_options.arguments(given)
    assert words == [
        *("--workers", "1:2", "--env", "A", "--env", "B", "--page", "--no-measured"),
        *("--run-dir", str(tmp_path), "--hang-timeout", "40.5", "--ps", "0"),
        *("--hosts", "a:2,b"),
    ]
    options = job_options.checked(words, "train.py")
    assert (str(options.spec.workers), options.env, options.measured) == ("1:2", ("A", "B"), False)
    environment = {"TFRUN_FRESH": "1", "TFRUN_KEEP": "3"}
    assert job_options.unset(given, environment) == {"TFRUN_KEEP": "3"}


@pytest.mark.parametrize(
    ("function", "arguments", "says"),
    [
        ("train", (), "'train' cannot be called (in tfrun.launch). Expected a function"),
        (train, ((1, 2),), "train cannot be called: too many positional arguments"),
        (train, ((), {"epoch": 1}), "unexpected keyword argument 'epoch'"),
        (train, (5,), "args=(…,)"),
        (train, ("5",), "args=(…,)"),
        (waits, (), "waits is async, so that a call alone runs nothing of it"),
        (yields, (), "yields is a generator"),
    ],
)
def test_the_call_is_one_that_workers_can_make(function, arguments, says):
    with pytest.raises(tfrun.TfrunError, match="TFRUN-105") as caught:
        tfrun.launch(function, *arguments)
    assert says in str(caught.value)


def test_a_worker_does_not_start_workers(monkeypatch):
    for name, value in WorkerSettings(task="worker:0").variables().items():
        monkeypatch.setenv(name, value)
    assert VARIABLE
    with pytest.raises(tfrun.TfrunError, match="TFRUN-122: this process is a worker"):
        tfrun.launch(train)


def test_a_task_of_another_cluster_does_not_start_workers(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}}')
    with pytest.raises(tfrun.TfrunError, match="TFRUN-107: TF_CONFIG states a cluster"):
        tfrun.launch(train)


def test_what_cannot_be_sent_is_named_with_the_way_to_it(tmp_path):
    file = (tmp_path / "log.txt").open("w")
    lock, thread = threading.Lock(), threading.Thread()

    class Model:
        def __init__(self):
            self.guard = lock

    def uses_file():
        print("here", file=file)

    def calls():
        return uses_file()

    def default(thread=thread):
        return thread

    def says(function, *args) -> str:
        with pytest.raises(tfrun.TfrunError, match="TFRUN-120") as caught:
            tfrun.launch(function, args)
        return str(caught.value)

    with file:
        assert "file is a _io.TextIOWrapper" in says(calls)
        assert "(in calls → uses_file → file)" in says(calls)
        assert "an open file is this process's own" in says(calls)
    assert "lock is a _thread.lock" in says(lambda: lock)
    assert "(in default → a default value" in says(default)
    assert "(in argument 0 → .guard)" in says(lambda model: model, Model())
    assert "(in argument 0 → ['a'] → [1])" in says(lambda values: values, {"a": (0, lock)})


def test_globals_of_functions_that_travel_with_their_code_are_named():
    names = {"LOCK": LOCK, "HOLDS": HOLDS, "__name__": "__main__"}
    exec("def outer(): return inner()\ndef inner(): return [HOLDS for _ in (1,)]", names)
    with pytest.raises(tfrun.TfrunError, match="TFRUN-120") as caught:
        tfrun.launch(names["outer"])
    assert "HOLDS['of it'][1] is a _thread.lock" in str(caught.value)
    assert "(in outer → inner → HOLDS → ['of it'] → [1])" in str(caught.value)
    assert "Make it inside the function" in str(caught.value)


def test_modules_that_others_would_not_find_travel_with_their_code(tmp_path, monkeypatch):
    (tmp_path / "nowhere_else.py").write_text("def answer():\n    return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import nowhere_else  # pyright: ignore[reportMissingImports]

    found, _ = sending.pickled(nowhere_else.answer)
    assert b"nowhere_else" in found and len(found) < 100  # by its name
    monkeypatch.setattr(sys, "path", sys.path[1:])
    carried, _ = sending.pickled(nowhere_else.answer)
    monkeypatch.delitem(sys.modules, "nowhere_else")
    assert pickle.loads(carried)() == 42
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(found)


def test_code_that_is_in_no_file_travels_with_its_lines():
    import linecache

    name = "<ipython-input-1-abc>"
    lines = ["def cell():\n", "    return 1\n"]
    sending.show_sources({name: lines})
    names = {"__name__": "__main__"}
    exec(compile("".join(lines), name, "exec"), names)
    try:
        _, sources = sending.pickled(names["cell"])
    finally:
        del linecache.cache[name]
    assert sources == {name: lines}
    sending.show_sources(sources)
    assert linecache.getline(name, 2) == "    return 1\n"
    del linecache.cache[name]


def ended(path: Path, text: str) -> None:
    (path / "events.jsonl").write_text(f'{{"event": "job_ended", {text}, "time": 1}}\n')


def test_no_tensorflow_is_imported_for_an_exception(tmp_path):
    task = "worker:1"
    (tmp_path / error_file(task)).write_bytes(b"ctensorflow.errors\nUnavailableError\n.")
    failure = f'"task": "{task}", "code": "TFRUN-401", "headline": "worker 1 failed first"'
    rest = '"said": "Boom: x", "traceback": "T", "log": "logs/worker-1.log", "fix": null'
    ended(tmp_path, f'"state": "failed", "failure": {{{failure}, {rest}}}')
    code = (
        "import pathlib, sys, tfrun.notebook.outcome as outcome\n"
        "here = pathlib.Path.cwd()\n"
        "try: outcome.result(here, here, 0, 1, 'train')\n"
        "except outcome.TfrunError as error: print(error, repr(str(error.__cause__)))\n"
        "print('tensorflow' in sys.modules)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert "TFRUN-401: worker 1 failed first: Boom: x" in said.stdout, said.stderr
    assert said.stdout.endswith(" '\\nin worker 1:\\nT'\nFalse\n")


def test_an_exception_comes_back_whatever_its_class_asks_for(tmp_path, work_under):
    class NoColumn(Exception):
        def __init__(self, name: str, *, table: str) -> None:
            super().__init__(f"no column {name}")
            self.table = table

    work_under(task="worker:1")
    launched._tell(tmp_path, NoColumn("price", table="sales"))
    found = outcome._exception(tmp_path / error_file("worker:1"))
    assert isinstance(found, NoColumn)
    assert (str(found), found.table) == ("no column price", "sales")


def test_a_module_that_makes_the_call_itself_is_told_so(tmp_path, monkeypatch, work_under):
    (tmp_path / "calls_itself.py").write_text("import tfrun\ntfrun.launch(print)\n")
    header = {"python": sys.version_info[:2], "path": [str(tmp_path)], "sources": {}}
    function = b"ccalls_itself\ntrain\n(t}t."
    (tmp_path / FUNCTION).write_bytes(pickle.dumps(header) + function)
    monkeypatch.setattr(sys, "path", [*sys.path])
    work_under(task="worker:0")
    with pytest.raises(tfrun.TfrunError) as caught:
        launched._received(tmp_path)
    assert caught.value.code == "TFRUN-122"


def test_the_kind_of_an_exception_is_said_once(tmp_path):
    task = '"task": "worker:0", "code": "TFRUN-401", "traceback": "T", "fix": null'
    headline = '"headline": "worker 0 failed first: exit code 1, KeyError", "type": "KeyError"'
    rest = '"said": "KeyError: 1", "log": "logs/worker-0.log"'
    ended(tmp_path, f'"state": "failed", "failure": {{{task}, {headline}, {rest}}}')
    with pytest.raises(tfrun.TfrunError, match=r"first: exit code 1: KeyError: 1 \(in"):
        outcome.result(tmp_path, tmp_path, 0, 1, "train")


def test_a_value_that_cannot_be_made_again_is_kept(tmp_path):
    folder = tmp_path / "launch-x"
    folder.mkdir()
    (folder / RESULT).write_bytes(b"cnowhere_at_all\nThing\n.")
    ended(tmp_path, '"state": "finished", "failure": null')
    with pytest.raises(tfrun.TfrunError, match=r"TFRUN-121.*No module named 'nowhere_at_all'") as e:
        outcome.result(folder, tmp_path, 0, 0, "train")
    assert e.value.where == str(tmp_path / RESULT)
    assert (tmp_path / RESULT).is_file()


@pytest.mark.parametrize(
    ("state", "code", "says"),
    [
        ("finished", 0, "train has ended its process on the chief"),
        ("preempted", 75, "the job was preempted before train had returned"),
        ("stopped", 130, "the job was stopped before train had returned"),
        ("", -9, "ended by signal 9"),
        ("", 1, "ended with exit code 1"),
    ],
)
def test_a_job_without_a_result_says_so(tmp_path, state, code, says):
    if state:
        ended(tmp_path, f'"state": "{state}", "failure": null')
    with pytest.raises(tfrun.TfrunError, match="TFRUN-123") as caught:
        outcome.result(tmp_path, tmp_path, 0, code, "train")
    assert says in str(caught.value)
    assert not (tmp_path / RESULT).exists()
