"""Fixtures of all tests: they run real `tfrun` processes, and check that none is left behind."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

import object_servers
from object_servers import BUCKET
from shares import in_share
from tfrun.job.settings import WorkerSettings, settings

# What a person's own machine has measured is not for the jobs of tests, nor theirs for it.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="tfrun-test-cache-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)
# What scripts write into temporary folders, and what TensorFlow writes there in workers that die.
os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="tfrun-test-")
atexit.register(shutil.rmtree, os.environ["TMPDIR"], ignore_errors=True)
# Of what the imports of all tests make nothing is garbage: see pytest_collection_finish.
gc.disable()
# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("tfrun", deadline=None)
hypothesis.settings.load_profile("tfrun")
# A shell's background jobs ignore Ctrl-C and hand that on: no job of ours would hear it either.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TFRUN = str(Path(sys.executable).with_name("tfrun"))
MARK = "TFRUN_TEST_MARK"
# test_ring.py holds its jobs against those of the others.
ASK_EACH_OTHER = {*("test_engine_features", "test_engine_loops", "test_ring", "test_recovery")}
JOB_SECONDS = 90
# Jobs that a promise is worth, but not every time that somebody looks: `make test-nets` runs them.
NETS = {*("deaths", "drills", "hosts", "options", "scripts", "versions")}  # folders
NETS |= {  # files of tests/cluster
    *("test_in_place_loops", "test_loop_replicas"),
    *("test_bench_jobs", "test_cannot_be_ended", "test_checkpoint_format", "test_elastic"),
    *("test_balance", "test_elastic_replicas", "test_engine_features", "test_evaluator"),
    *("test_faults_upon_faults", "test_full_disk"),
    *("test_ledger_deaths", "test_other_batches", "test_page", "test_page_many", "test_parity"),
    *("test_parameter_server_faults", "test_parameter_server_resume", "test_preemption"),
    *("test_recovery_control", "test_recovery_faults", "test_replicas", "test_run_dir_flat"),
    *("test_scale_batch", "test_tune", "test_written_files"),
}
# Of their tests one half runs on one day, the other on the next. So do those of NETS.
BY_TURNS = {
    *("test_accumulation", "test_adoption", "test_batch_norms", "test_callbacks"),
    *("test_data_python", "test_engine_losses", "test_in_place", "test_own_variables"),
    *("test_parameter_servers_fit", "test_recovery", "test_remote_checkpoints", "test_ring"),
    *("test_sharded_optimizer", "test_strategies", "test_train_state", "test_trains_alone"),
    *("test_unmatched_calls", "test_whole_values"),
}
THOROUGH = os.environ.get("TFRUN_HOST_TESTS") == "1"  # `make test-hosts` runs the long ones, too


@pytest.fixture(autouse=True)
def no_other_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests of this process have made in variables is none of this one's script."""
    if found := sys.modules.get("tfrun.engine.script_state"):
        monkeypatch.setattr(found, "made", [])


class Jobs:
    """Runs `tfrun` in a directory of the test's own."""

    def __init__(self, directory: Path, mark: str) -> None:
        self.directory = directory
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TFRUN_")},
            MARK: mark,
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "120",
        }
        self.environment.pop("TF_CONFIG", None)

    def script(self, text: str, name: str = "train.py") -> Path:
        """Writes a script into the directory."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(
        self, *args: object, env: dict[str, str] | None = None, **options
    ) -> subprocess.Popen:
        """Starts `tfrun args…` and returns at once."""
        return subprocess.Popen(
            [TFRUN, *map(str, args)],
            env={**self.environment, **(env or {})},
            **{
                "cwd": self.directory,
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                **options,
            },
        )

    def run(
        self, *args: object, env: dict[str, str] | None = None, timeout: float = JOB_SECONDS
    ) -> subprocess.CompletedProcess:
        """Runs `tfrun args…` to its end."""
        process = self.start(*args, env=env)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"tfrun {args} took more than {timeout} s\n{out[-2000:]}\n{err[-4000:]}")
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def run_dir(self) -> Path:
        """The only run directory."""
        (path,) = (self.directory / "tfrun-runs").iterdir()
        return path


def marked(mark: str) -> list[psutil.Process]:
    """Returns the processes that the test with this mark has started, also orphans."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def wait_until(condition, what: str, seconds: float = 30.0):
    """Polls until `condition()` is true and returns its value; fails at the deadline."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s: {what}")
        time.sleep(0.02)
    return value


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of `make test-nets`, and skips those that are marked as thorough.

    What installs other versions comes first: it waits for the network, while others compute.
    """
    items.sort(key=lambda item: item.path.parent.name != "versions")
    skip = pytest.mark.skip(reason="it takes long: make test-hosts runs it")
    other = pytest.mark.skip(reason="another day's turn; TFRUN_TEST_SHARE=all runs it")
    for item in items:
        is_job = item.path.parent.name == "cluster" and item.path.stem in BY_TURNS | NETS
        if is_job and not in_share(item.nodeid, of=2):
            item.add_marker(other)
        if not NETS.isdisjoint({item.path.parent.name, item.path.stem}):
            item.add_marker(pytest.mark.net)
        if not THOROUGH and item.get_closest_marker("thorough"):
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Has the garbage collector look at what the tests make, and not at TensorFlow each time.

    Keras's `clear_session` collects all garbage, which then takes most of the time of tests that
    call it: half a second, in a process that has imported all tests.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Says which tests stay together when several processes share the work (`pytest -n 2`).

    The tests of one file share jobs. Those of tests/hosts build hosts, one lab after the other.
    Each of other people's scripts has jobs of its own.
    """
    # Not by groups (--dist loadgroup): pytest-xdist 3.8 writes them into names that pytest 9.2
    # does not read any more, and then each process runs the jobs of each file.
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0])
            if file.parent.name == "hosts":
                return "hosts"
            if file.stem in ("test_scripts", "test_alone", "test_unchanged", "test_options"):
                return nodeid
            if file.stem == "test_deaths":  # those of one kind share what is undisturbed
                return nodeid.rpartition("-")[0]
            return "engine" if file.stem in ASK_EACH_OTHER else str(file)

    config.option.loadscopereorder = False  # as they are collected: the shortest come last
    return ByFile(config, log)


@pytest.fixture
def work_under(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Gives this process the settings of a worker, as the worker's agent would."""

    def use(**stated: Any) -> None:
        for name, value in WorkerSettings(**stated).variables().items():
            monkeypatch.setenv(name, value)
        settings.cache_clear()

    settings.cache_clear()
    yield use
    settings.cache_clear()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """Runs jobs, and fails the test when a process of theirs is left at its end."""
    mark = uuid.uuid4().hex
    yield Jobs(tmp_path, mark)
    left = marked(mark)
    deadline = time.monotonic() + 3
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = marked(mark)
    names = [(process.pid, process.cmdline()) for process in left if process.is_running()]
    for process in left:
        process.kill()
    assert not names, f"processes were left behind: {names}"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("ONLY ROOT can mount a small disk: a full and a read-only one are NOT TESTED")
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture(scope="module")
def servers():
    with object_servers.s3(BUCKET) as s3, object_servers.gcs(BUCKET) as gcs:
        yield {"s3": s3, "gs": gcs}


@pytest.fixture(params=["s3", "gs"])
def objects(request, servers):
    """A place of the test's own, on both servers."""
    from tfrun.storage.objects import Objects

    with object_servers.in_environment(servers[request.param]):
        yield Objects(f"{request.param}://{BUCKET}/{request.node.name[:40]}", patience=5)


@pytest.fixture
def faults(servers):
    """A proxy before the S3 server, of which this process is a client."""
    proxy = object_servers.Faults(servers["s3"])
    with object_servers.in_environment(proxy):
        yield proxy
    proxy.close()
