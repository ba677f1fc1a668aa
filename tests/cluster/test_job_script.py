"""Scripts run as under plain python: `__main__`, arguments, paths, pickling, output."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from conftest import Jobs
from tfrun.cli.main import run
from tfrun.job.spec import JobSpec, Program

START_METHODS = ["fork", "fresh"]


@pytest.fixture(params=START_METHODS)
def method(request) -> str:
    return request.param


def test_script_is_main_with_its_arguments_and_neighbours(jobs: Jobs, method: str) -> None:
    jobs.script("VALUE = 42", "pkg/neighbour.py")
    jobs.script(
        "import os, pickle, sys\nfrom neighbour import VALUE\n"
        "class Thing:\n    pass\n"
        "assert __name__ == '__main__' and __spec__ is None\n"
        "assert sys.modules['__main__'].Thing is Thing\n"
        "assert type(pickle.loads(pickle.dumps(Thing()))) is Thing\n"
        "assert os.path.samefile(sys.path[0], 'pkg'), sys.path\n"
        "assert os.path.samefile(__file__, 'pkg/train.py')\n"
        "print(VALUE, sys.argv)\n",
        "pkg/train.py",
    )
    result = jobs.run("--start-method", method, "pkg/train.py", "--epochs", "3", "-n", "9")
    assert result.stderr.count("TFRUN-") == 0, result.stderr
    assert result.stdout == "42 ['pkg/train.py', '--epochs', '3', '-n', '9']\n"


def test_module_runs_as_python_m(jobs: Jobs, method: str) -> None:
    jobs.script("", "pkg/__init__.py")
    jobs.script("VALUE = 7", "pkg/neighbour.py")
    jobs.script(
        "import os, sys\nfrom .neighbour import VALUE\n"
        "assert __name__ == '__main__' and __spec__.name == 'pkg.train'\n"
        "print(VALUE, os.path.basename(sys.argv[0]), sys.argv[1:])\n",
        "pkg/train.py",
    )
    result = jobs.run("--start-method", method, "-m", "pkg.train", "--flag", "-m")
    assert result.stdout == "7 train.py ['--flag', '-m']\n", result.stderr


def test_multiprocessing_spawn_finds_main(jobs: Jobs) -> None:
    jobs.script(
        "import multiprocessing\n"
        "def square(x):\n    return x * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(square, [1, 2, 3]))\n"
    )
    assert jobs.run("train.py").stdout == "[1, 4, 9]\n"


def test_environment_of_each_worker(jobs: Jobs, method: str) -> None:
    jobs.script(
        "import json, os, pathlib, random, tfrun\n"
        "names = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'TFRUN_ROUND',\n"
        "         'TFRUN_RUN_DIR', 'TF_CONFIG', 'TF_NUM_INTRAOP_THREADS', 'MINE')\n"
        "seen = {name: os.environ[name] for name in names}\n"
        "world = tfrun.world()\n"
        "seen['world'] = [world.rank, world.size, world.role, world.is_chief, world.in_job]\n"
        "seen['random'] = random.random()\n"
        "seen['set'] = list(set('one two three four five six seven eight'.split()))\n"
        "pathlib.Path(f'out{world.rank}').write_text(json.dumps(seen))\n"
    )
    args = ("-n", 3, "--threads-per-worker", 5, "--start-method", method, "--seed", 4)
    result = jobs.run(*args, "--run-dir", "run", "train.py", env={"MINE": "kept"})
    assert result.returncode == 0, result.stderr
    outs = [json.loads((jobs.directory / f"out{rank}").read_text()) for rank in range(3)]
    for rank, out in enumerate(outs):
        assert out["RANK"] == out["LOCAL_RANK"] == str(rank)
        assert out["WORLD_SIZE"] == out["LOCAL_WORLD_SIZE"] == "3"
        assert out["TFRUN_ROUND"] == "0"
        assert out["TFRUN_RUN_DIR"] == str((jobs.directory / "run").resolve())
        assert out["TF_NUM_INTRAOP_THREADS"] == "5"
        assert out["MINE"] == "kept"
        assert out["world"] == [rank, 3, "worker", rank == 0, True]
        config = json.loads(out["TF_CONFIG"])
        assert config["task"] == {"type": "worker", "index": rank}
        assert len(set(config["cluster"]["worker"])) == 3
        assert out["random"] == outs[0]["random"]
        assert out["set"] == outs[0]["set"]
    clusters = {json.dumps(json.loads(out["TF_CONFIG"])["cluster"]) for out in outs}
    assert len(clusters) == 1


def test_output_of_the_chief_is_live_and_all_of_it_is_in_the_logs(jobs: Jobs) -> None:
    jobs.script(
        "import os, sys\nrank = os.environ['RANK']\n"
        "print('out', rank)\nprint('err', rank, file=sys.stderr)\n"
        "print('I0000 00:00:1795179634.487273    7740 x.cc:1] noise', file=sys.stderr)\n"
        "print('2026-01-01 00:00:00.123456: I tensorflow/x.cc:9] noise', file=sys.stderr)\n"
        "sys.stderr.write('no newline at the end')\n"
    )
    result = jobs.run("-n", 2, "--run-dir", "run", "train.py")
    assert result.stdout == "out 0\n"
    assert "err 0\n" in result.stderr
    assert "no newline at the end" in result.stderr
    assert "err 1" not in result.stderr
    assert "noise" not in result.stderr
    for rank in (0, 1):
        log = (jobs.directory / f"run/logs/worker-{rank}.log").read_text()
        assert f"out {rank}\n" in log
        assert f"err {rank}\n" in log
        assert log.count("noise") == 2


def test_log_all_shows_every_worker_with_a_prefix(jobs: Jobs) -> None:
    jobs.script("import os\nprint('one', os.environ['RANK'])\nprint('two', end='')")
    result = jobs.run("-n", 2, "--log-all", "train.py")
    lines = result.stdout.splitlines()
    assert sorted(lines) == [
        *("[worker 0] one 0", "[worker 0] two", "[worker 1] one 1", "[worker 1] two")
    ]


def test_a_terminal_stays_a_terminal_for_the_chief(jobs: Jobs) -> None:
    jobs.script(
        "import os, sys\n"
        "print(sys.stdout.isatty(), os.get_terminal_size() if sys.stdout.isatty() else None)\n"
    )
    ours, theirs = pty.openpty()
    process = jobs.start("-n", 2, "--run-dir", "run", "train.py", stdout=theirs)
    os.close(theirs)
    _, stderr = process.communicate(timeout=60)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert shown.startswith("True os.terminal_size("), (shown, stderr)
    assert (jobs.directory / "run/logs/worker-1.log").read_text().startswith("False")


def test_a_reader_that_leaves_does_not_stop_the_job(jobs: Jobs) -> None:
    """`tfrun train.py | head -1`."""
    jobs.script(
        "import pathlib\nfor i in range(20000):\n    print('line', i)\n"
        "pathlib.Path('finished').write_text('yes')\n"
    )
    process = jobs.start("train.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr is not None
    process.stderr.close()
    assert (jobs.directory / "finished").read_text() == "yes"


def test_a_file_that_shadows_the_standard_library_harms_no_process_of_ours(jobs: Jobs) -> None:
    for name in ("random.py", "types.py", "keras.py", "select.py"):
        jobs.script("raise RuntimeError('imported by mistake')", name)
    jobs.script("print('fine')", "elsewhere/train.py")
    assert jobs.run("elsewhere/train.py").stdout == "fine\n"


def test_jobs_at_once_have_ports_of_their_own(jobs: Jobs) -> None:
    jobs.script(
        "import json, os, tensorflow as tf\n"
        "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
        "@tf.function\n"
        "def total():\n"
        "    reduce = lambda: tf.distribute.get_replica_context().all_reduce('sum', 1.0)\n"
        "    return strategy.run(reduce)\n"
        "print(json.dumps([float(total()), json.loads(os.environ['TF_CONFIG'])['cluster']]))\n"
    )
    running = [jobs.start("-n", 2, "--threads-per-worker", 1, "train.py") for _ in range(3)]
    addresses = []
    for process in running:
        out, err = process.communicate(timeout=150)
        assert process.returncode == 0, err
        total, cluster = json.loads(out)
        assert total == 2.0
        addresses += cluster["worker"]
    assert len(set(addresses)) == 6


def test_plain_python_and_tfrun_agree_on_exit_codes(jobs: Jobs) -> None:
    for end in ("sys.exit()", "sys.exit(300)"):  # others: tests/cluster/test_job_life.py
        script = jobs.script(f"import sys\n{end}\n")
        plain = subprocess.run([sys.executable, script], capture_output=True, check=False)
        assert jobs.run("train.py").returncode == plain.returncode, end


def test_the_chiefs_last_words_are_shown_where_another_worker_ends_first(jobs: Jobs) -> None:
    jobs.script(
        "import os, sys, time\n"
        "time.sleep(0.2 * (os.environ['RANK'] == '0'))\n"
        "print('too few samples')\nsys.exit(3)\n"
    )
    result = jobs.run("-n", 3, "train.py")
    assert (result.returncode, result.stdout) == (3, "too few samples\n"), result.stderr


# What a job of workers alone on this machine can be told, by variables; another value than the
# default. What else there is says which machines or roles, or how to show the job.
TOLD = {
    **{"workers": "2", "join_timeout": "300", "rejoin_timeout": "20", "launcher_timeout": "40"},
    **{
        "grace": "60",
        "strategy": "script",
        "scale_batch": "1",
        "replicas": "2",
        "balance": "auto",
        "in_place": "1",
        "shard_optimizer": "1",
        "spares": "1",
        "communication": "host",
        "compress": "bf16",
        "overlap": "on",
    },
    **{"measured": "0", "threads_per_worker": "1", "start_method": "fork", "seed": "7"},
    **{"sync_check": "10", "strict": "1", "max_restarts": "5", "hang_timeout": "50"},
    **{"snapshot_every": "30s", "steps_per_execution": "auto", "checkpoint_dir": "saved"},
    **{"checkpoint_every": "epoch", "keep": "2", "fresh": "1", "deterministic": "1"},
    **{"ledger": "1", "log_all": "1", "tensorboard": "boards", "run_dir": "outer"},
}
OF_OTHERS = {
    *("hosts", "hostfile", "cluster", "remote_python", "remote_dir", "env", "sync", "tls_cert"),
    *("tls_key", "ps", "max_staleness", "evaluator", "module", "page", "plain"),
}
SWITCHES = {"TFRUN_OWN_ROWS": "0", "TFRUN_SHARED_MEMORY": "0", "TFRUN_DRILL": "1"}


def test_a_job_inside_a_worker_inherits_nothing_but_what_its_script_sets(jobs: Jobs) -> None:
    options = {p.name for p in run.params if isinstance(p, click.Option) and p.expose_value}
    assert options == TOLD.keys() | OF_OTHERS, "a new option belongs into one of the two"
    jobs.script("import os\nprint('inner', os.environ['WORLD_SIZE'])", "inner.py")
    jobs.script(
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "if os.environ['RANK'] == '0':\n"
        "    tfrun = Path(sys.executable).with_name('tfrun')\n"
        "    subprocess.run([tfrun, 'inner.py'], check=True)\n"
        "    os.environ |= {'TFRUN_COMPRESS': 'fp16', 'TFRUN_RUN_DIR': 'mine'}\n"
        "    subprocess.run([tfrun, 'inner.py'], check=True)\n"
    )
    told = {f"TFRUN_{name.upper()}": value for name, value in TOLD.items()}
    result = jobs.run("train.py", env={**told, **SWITCHES})
    assert result.stdout == "[worker 0] inner 1\n" * 2, result.stdout + result.stderr
    assert not re.search("TFRUN_[A-Z_]* has no effect", result.stderr), result.stderr
    outer, mine = (_stated(jobs.directory / name) for name in ("outer", "mine"))
    (inner,) = map(_stated, (jobs.directory / "tfrun-runs").iterdir())
    plain = {**JobSpec(program=Program(target="inner.py")).to_json(), **_LEFT_OUT}
    plain["stated"] = ["script"]
    assert inner == json.loads(json.dumps(plain))
    assert mine == {**inner, "compress": "fp16"}
    differ = {name for name in outer if outer[name] != inner[name]}
    assert differ >= {"communication", "overlap", "max_restarts", "keep", "own_rows", "drill"}


# Paths, and what each job draws anew.
_LEFT_OUT = dict.fromkeys(("run_dir", "checkpoint_dir", "seed", "started", "pid"))


def _stated(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "job.json").read_text()) | _LEFT_OUT
