"""The command line as people use it: frozen here, so that a change is meant."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import tfrun
from tfrun.cli.job_variables import unknown
from tfrun.cli.main import VERBS, command_for, run
from tfrun.cli.params import Number

# name: (how it is written, its variable, its default, hidden)
SURFACE = {
    "workers": (["-n", "--workers"], "TFRUN_WORKERS", None, False),
    "hosts": (["-H", "--hosts"], "TFRUN_HOSTS", None, False),
    "hostfile": (["--hostfile"], "TFRUN_HOSTFILE", None, False),
    "cluster": (["--cluster"], "TFRUN_CLUSTER", None, False),
    "remote_python": (["--remote-python"], "TFRUN_REMOTE_PYTHON", None, False),
    "remote_dir": (["--remote-dir"], "TFRUN_REMOTE_DIR", None, False),
    "env": (["--env"], "TFRUN_ENV", (), False),
    "sync": (["--sync"], "TFRUN_SYNC", False, False),
    "join_timeout": (["--join-timeout"], "TFRUN_JOIN_TIMEOUT", 600.0, False),
    "rejoin_timeout": (["--rejoin-timeout"], "TFRUN_REJOIN_TIMEOUT", 0.0, False),
    "launcher_timeout": (["--launcher-timeout"], "TFRUN_LAUNCHER_TIMEOUT", 30.0, False),
    "grace": (["--grace"], "TFRUN_GRACE", 25.0, False),
    "ps": (["--ps"], "TFRUN_PS", 0, False),
    "module": (["-m", "--module"], "TFRUN_MODULE", False, False),
    "run_dir": (["--run-dir"], "TFRUN_RUN_DIR", None, False),
    "log_all": (["--log-all"], "TFRUN_LOG_ALL", False, False),
    "spares": (["--spares"], "TFRUN_SPARES", 0, False),
    "strategy": (["--strategy"], "TFRUN_STRATEGY", "auto", False),
    "scale_batch": (["--scale-batch"], "TFRUN_SCALE_BATCH", False, False),
    "replicas": (["--replicas"], "TFRUN_REPLICAS", None, False),
    "balance": (["--balance"], "TFRUN_BALANCE", "off", False),
    "in_place": (["--in-place"], "TFRUN_IN_PLACE", None, False),
    "shard_optimizer": (["--shard-optimizer"], "TFRUN_SHARD_OPTIMIZER", False, False),
    "communication": (["--communication"], "TFRUN_COMMUNICATION", "auto", False),
    "compress": (["--compress"], "TFRUN_COMPRESS", "off", False),
    "overlap": (["--overlap"], "TFRUN_OVERLAP", "auto", False),
    "measured": (["--measured"], "TFRUN_MEASURED", True, False),
    "threads_per_worker": (["--threads-per-worker"], "TFRUN_THREADS_PER_WORKER", None, False),
    "start_method": (["--start-method"], "TFRUN_START_METHOD", "auto", True),
    "seed": (["--seed"], "TFRUN_SEED", None, False),
    "sync_check": (["--sync-check"], "TFRUN_SYNC_CHECK", 0, False),
    "strict": (["--strict"], "TFRUN_STRICT", False, False),
    "max_restarts": (["--max-restarts"], "TFRUN_MAX_RESTARTS", 3, False),
    "hang_timeout": (["--hang-timeout"], "TFRUN_HANG_TIMEOUT", 30.0, False),
    "snapshot_every": (["--snapshot-every"], "TFRUN_SNAPSHOT_EVERY", "auto", False),
    "steps_per_execution": (
        ["--steps-per-execution"],
        "TFRUN_STEPS_PER_EXECUTION",
        "script",
        False,
    ),
    "checkpoint_dir": (["--checkpoint-dir"], "TFRUN_CHECKPOINT_DIR", None, False),
    "checkpoint_every": (["--checkpoint-every"], "TFRUN_CHECKPOINT_EVERY", "10m", False),
    "keep": (["--keep"], "TFRUN_KEEP", 5, False),
    "fresh": (["--fresh"], "TFRUN_FRESH", False, False),
    "deterministic": (["--deterministic"], "TFRUN_DETERMINISTIC", False, False),
    "ledger": (["--ledger"], "TFRUN_LEDGER", False, False),
    "max_staleness": (["--max-staleness"], "TFRUN_MAX_STALENESS", None, False),
    "evaluator": (["--evaluator"], "TFRUN_EVALUATOR", False, False),
    "page": (["--page"], "TFRUN_PAGE", False, False),
    "plain": (["--plain"], "TFRUN_PLAIN", False, False),
    "tensorboard": (["--tensorboard"], "TFRUN_TENSORBOARD", None, False),
    "tls_cert": (["--tls-cert"], "TFRUN_TLS_CERT", None, False),
    "tls_key": (["--tls-key"], "TFRUN_TLS_KEY", None, False),
}
# One value of each variable, and what the verb then gets.
VALUES = {
    "workers": ("2:8", "2:8"),
    "hosts": ("a,b:2", "a,b:2"),
    "hostfile": ("hosts", "hosts"),
    "cluster": ("cluster.json", "cluster.json"),
    "remote_python": ("/opt/python", "/opt/python"),
    "remote_dir": ("/there", "/there"),
    "env": ("NAME", ("NAME",)),
    "sync": ("1", True),
    "join_timeout": ("30", 30.0),
    "rejoin_timeout": ("20", 20.0),
    "launcher_timeout": ("40", 40.0),
    "grace": ("60", 60.0),
    "ps": ("2", 2),
    "module": ("1", True),
    "run_dir": ("somewhere", "somewhere"),
    "log_all": ("true", True),
    "strategy": ("script", "script"),
    "scale_batch": ("1", True),
    "replicas": ("4", 4),
    "balance": ("auto", "auto"),
    "in_place": ("1", True),
    "shard_optimizer": ("1", True),
    "communication": ("ring", "ring"),
    "compress": ("bf16", "bf16"),
    "overlap": ("on", "on"),
    "measured": ("1", True),
    "threads_per_worker": ("3", 3),
    "start_method": ("fresh", "fresh"),
    "seed": ("7", 7),
    "sync_check": ("10", 10),
    "strict": ("1", True),
    "max_restarts": ("0", 0),
    "hang_timeout": ("5", 5.0),
    "snapshot_every": ("30s", "30s"),
    "steps_per_execution": ("auto", "auto"),
    "checkpoint_dir": ("saved", "saved"),
    "checkpoint_every": ("epoch", "epoch"),
    "keep": ("2", 2),
    "fresh": ("1", True),
    "deterministic": ("1", True),
    "ledger": ("1", True),
    "max_staleness": ("3", 3),
    "spares": ("2", 2),
    "evaluator": ("1", True),
    "page": ("1", True),
    "plain": ("1", True),
    "tensorboard": ("boards", "boards"),
    "tls_cert": ("cert.pem", "cert.pem"),
    "tls_key": ("key.pem", "key.pem"),
}


def parse(*args: str) -> dict[str, object]:
    """Returns what the verb would be called with."""
    return run.make_context("tfrun", [*args], auto_envvar_prefix="TFRUN").params


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, variable, _, _ in SURFACE.values():
        monkeypatch.delenv(variable, raising=False)


def test_the_options_are_these() -> None:
    options = {
        param.name: (param.opts, param.hidden)
        for param in run.params
        if isinstance(param, click.Option) and param.expose_value
    }
    assert options == {name: (opts, hidden) for name, (opts, _, _, hidden) in SURFACE.items()}
    arguments = [param.name for param in run.params if isinstance(param, click.Argument)]
    assert arguments == ["script", "script_args"]


def test_the_defaults_are_these() -> None:
    defaults = {name: default for name, (_, _, default, _) in SURFACE.items()}
    assert parse("train.py") == {**defaults, "script": "train.py", "script_args": ()}


@pytest.mark.parametrize("name", SURFACE)
def test_each_option_is_also_a_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = VALUES[name]
    monkeypatch.setenv(SURFACE[name][1], text)
    assert parse("train.py")[name] == value


def test_what_was_measured_can_be_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("--no-measured", "train.py")["measured"] is False
    monkeypatch.setenv("TFRUN_MEASURED", "0")
    assert parse("train.py")["measured"] is False


@pytest.mark.parametrize("name", SURFACE)
def test_an_option_wins_over_its_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value = VALUES[name]
    is_flag = isinstance(value, bool)
    other = {"workers": "3", "ps": "9", "run_dir": "elsewhere", "communication": "nccl"}
    monkeypatch.setenv(SURFACE[name][1], "0" if is_flag else other.get(name, "auto"))
    if not is_flag and name not in other and name != "start_method":
        monkeypatch.setenv(SURFACE[name][1], "1")
    for written in SURFACE[name][0]:
        args = [written] if is_flag else [written, text]
        assert parse(*args, "train.py")[name] == value


@pytest.mark.parametrize("name", SURFACE)
def test_an_empty_variable_is_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SURFACE[name][1], "")
    assert parse("train.py")[name] == SURFACE[name][2]


@pytest.mark.parametrize(
    "args",
    [
        ["--epochs", "3"],
        ["-n", "4"],
        ["--help"],
        ["--version"],
        ["--", "-x"],
        ["-m", "other"],
        ["", "a b", "*"],
        ["other.py"],
    ],
)
def test_everything_after_the_script_belongs_to_the_script(args: list[str]) -> None:
    parsed = parse("-n", "2", "train.py", *args)
    assert parsed["script_args"] == tuple(args)
    assert (parsed["workers"], parsed["module"]) == ("2", False)


def test_two_dashes_end_tfruns_own_options() -> None:
    parsed = parse("-n", "2", "--", "-odd-name.py", "-n", "4")
    assert (parsed["script"], parsed["script_args"]) == ("-odd-name.py", ("-n", "4"))


LIGHT = """
import sys
from tfrun.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
heavy = {"tensorflow", "keras", "numpy", "aiohttp", "rich", "safetensors"}
print(code, sorted(heavy & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("args", "code"),
    [
        *((["--help"], 0), (["-h"], 0), (["--version"], 0), (["missing.py"], 2)),
        *((["-n", "0", "x"], 2), (["drill", "--help"], 0), (["drill", "missing.py"], 2)),
        *((["ledger", "--help"], 0), (["page", "--help"], 0), (["page", "missing"], 2)),
        *((["parity", "missing.py"], 2), (["tune", "missing.py"], 2)),
        *((["bench", "--help"], 0), (["bench", "--sizes", "x"], 2), (["bench", "-n", "1"], 2)),
        *((["submit", "--help"], 0), (["submit", "slurm", "missing.py"], 2)),
    ],
)
def test_what_answers_at_once_imports_nothing_heavy(args: list[str], code: int) -> None:
    command = [sys.executable, "-c", LIGHT, *args]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stderr.splitlines()[-1] == f"{code} []"


# Of the options that a job has anywhere, `serve` has all that do not say which machines.
ELSEWHERE = ("hosts", "hostfile", "cluster", "remote_python", "remote_dir", "env", "sync", "ps")
SERVED = {name: row for name, row in SURFACE.items() if name not in ELSEWHERE}
# The same of each verb.
VERB_SURFACE = {
    "bench": {
        "workers": (["-n", "--workers"], None),
        "hosts": (["-H", "--hosts"], None),
        "remote_python": (["--remote-python"], None),
        "remote_dir": (["--remote-dir"], None),
        "communication": (["--communication"], None),
        "sizes": (["--sizes"], "4K,64K,1M,11M,100M"),
        "model": (["--model"], "11M"),
        "batch": (["--batch"], 64),
        "steps": (["--steps"], 30),
        "plot": (["--plot"], None),
        "timeout": (["--timeout"], 600.0),
        "remember": (["--remember"], True),
        "run_dir": (["--run-dir"], None),
        "json_file": (["--json"], None),
    },
    "doctor": {
        "hosts": (["-H", "--hosts"], None),
        "hostfile": (["--hostfile"], None),
        "remote_python": (["--remote-python"], None),
        "remote_dir": (["--remote-dir"], None),
        "run_dir": (["--run-dir"], "tfrun-runs"),
        "as_json": (["--json"], False),
    },
    "drill": {
        "workers": (["-n", "--workers"], None),
        "hosts": (["-H", "--hosts"], None),
        "faults": (["--faults"], None),
        "kills": (["--kills"], 10),
        "seed": (["--seed"], None),
        "deterministic": (["--deterministic"], False),
        "limit": (["--limit"], None),
        "timeout": (["--timeout"], 600.0),
        "run_dir": (["--run-dir"], None),
        "json_file": (["--json"], None),
    },
    "join": {
        "token_file": (["--token-file"], None),
        "slots": (["--slots"], 1),
        "tls_ca": (["--tls-ca"], None),
        "join_timeout": (["--join-timeout"], 600.0),
    },
    "ledger": {"as_json": (["--json"], False)},
    "page": {"port": (["--port"], 0)},
    "parity": {
        "workers": (["-n", "--workers"], "1,2"),
        "steps": (["--steps"], 20),
        "tolerance": (["--tolerance"], 1e-5),
        "replicas": (["--replicas"], None),
        "seed": (["--seed"], None),
        "deterministic": (["--deterministic"], False),
        "timeout": (["--timeout"], 600.0),
        "run_dir": (["--run-dir"], None),
        "json_file": (["--json"], None),
    },
    "profile": {
        "steps": (["--steps"], 20),
        "folder": (["--dir"], None),
        "timeout": (["--timeout"], 300.0),
    },
    "render kubernetes": {
        "workers": (["-n", "--workers"], "1"),
        "image": (["--image"], "image"),
        "kind": (["--kind"], "job"),
        "name": (["--name"], None),
        "namespace": (["--namespace"], ""),
        "per_pod": (["--per-pod"], 1),
        "ps": (["--ps"], 0),
        "gpus": (["--gpus"], 0),
        "cpu": (["--cpu"], ""),
        "memory": (["--memory"], ""),
        "shm": (["--shm"], "2Gi"),
        "claim": (["--claim"], ""),
        "storage": (["--storage"], "10Gi"),
        "storage_class": (["--storage-class"], ""),
        "secret": (["--secret"], ""),
        "tls_secret": (["--tls-secret"], ""),
        "env": (["--env"], ()),
        "workdir": (["--workdir"], ""),
        "grace": (["--grace"], 90),
        "module": (["-m", "--module"], False),
    },
    "serve": {
        "cluster": (["--cluster"], None),
        "role": (["--role"], None),
        "index": (["--index"], 0),
        "listen": (["--listen"], None),
        "slots": (["--slots"], 1),
        "token_file": (["--token-file"], None),
        **{name: (opts, default) for name, (opts, _, default, _) in SERVED.items()},
    },
    "logs": {
        "rank": (["--rank"], None),
        "follow": (["-f", "--follow"], False),
        "grep": (["--grep"], None),
    },
    "env": {"as_json": (["--json"], False)},
    "ls": {},
    "stacks": {"threads": (["--threads"], False)},
    "status": {"as_json": (["--json"], False)},
    "stop": {"now": (["--now"], False)},
    "top": {},
    "submit slurm": {
        "nodes": (["-N", "--nodes"], 1),
        "workers": (["-n", "--workers"], None),
        "partition": (["-p", "--partition"], None),
        "account": (["-A", "--account"], None),
        "limit": (["-t", "--time"], None),
        "cpus_per_task": (["-c", "--cpus-per-task"], None),
        "gpus_per_node": (["--gpus-per-node"], None),
        "mem": (["--mem"], None),
        "job_name": (["-J", "--job-name"], None),
        "grace": (["--grace"], 60),
        "sbatch": (["--sbatch"], ()),
        "setup": (["--setup"], ()),
        "run_dir": (["--run-dir"], None),
        "dry_run": (["--dry-run"], False),
        "module": (["-m", "--module"], False),
    },
    "tune": {
        "workers": (["-n", "--workers"], 1),
        "start": (["--start"], 8),
        "most": (["--most"], 65536),
        "steps": (["--steps"], 10),
        "memory_limit": (["--memory-limit"], None),
        "worlds": (["--for"], "1,2,4,8"),
        "plot": (["--plot"], None),
        "seed": (["--seed"], None),
        "timeout": (["--timeout"], 600.0),
        "run_dir": (["--run-dir"], None),
        "json_file": (["--json"], None),
    },
}


# What stands after the options of a verb, and what the verb gets of it.
SCRIPT = (["train.py", "-n", "9"], {"script": "train.py", "script_args": ("-n", "9")})
VERB_ARGUMENTS = {
    "bench": ([], {}),
    "doctor": ([], {}),
    "env": ([], {}),
    "render kubernetes": (["--image", "image", *SCRIPT[0]], SCRIPT[1]),
    "join": (["--token-file", "f", "h:1"], {"token_file": "f", "address": "h:1"}),
    "ledger": (["some-run"], {"run": "some-run"}),
    "page": (["some-run"], {"run": "some-run"}),
    "profile": (["some-run"], {"run": "some-run"}),
    **{
        verb: (["some-run"], {"run": "some-run"})
        for verb in ("status", "top", "logs", "stop", "stacks")
    },
    "ls": (["some-runs"], {"folder": "some-runs"}),
    "serve": (["-n", "2", *SCRIPT[0]], {"workers": "2", **SCRIPT[1]}),
}


@pytest.mark.parametrize("verb", VERB_SURFACE)
def test_the_options_of_a_verb_are_these(verb: str) -> None:
    given, arguments = VERB_ARGUMENTS.get(verb, SCRIPT)
    command, args, name = command_for([*verb.split(), *given])
    assert (args, name) == (given, f"tfrun {verb}")
    surface = VERB_SURFACE[verb]
    options = {
        param.name: param.opts
        for param in command.params
        if isinstance(param, click.Option) and param.expose_value
    }
    assert options == {name: opts for name, (opts, _) in surface.items()}
    parsed = command.make_context(name, args).params
    defaults = {name: default for name, (_, default) in surface.items()}
    assert parsed == {**defaults, **arguments}


def test_every_verb_is_frozen() -> None:
    assert {verb.split()[0] for verb in VERB_SURFACE} == set(VERBS)


def test_the_variables_of_a_verb_begin_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFRUN_WORKERS", "7")
    monkeypatch.setenv("TFRUN_DRILL_WORKERS", "5")
    command, args, name = command_for(["drill", "train.py"])
    assert command.make_context(name, args).params["workers"] == "5"


def test_what_is_an_option_of_every_job_has_one_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFRUN_WORKERS", "7")
    monkeypatch.setenv("TFRUN_COMPRESS", "bf16")
    monkeypatch.setenv("TFRUN_SERVE_SLOTS", "3")
    command, args, name = command_for(["serve", "train.py"])
    told = command.make_context(name, args).params
    assert (told["workers"], told["compress"], told["slots"]) == ("7", "bf16", 3)
    whole, args, name = command_for(["train.py"])
    assert whole.make_context(name, args).params["compress"] == "bf16"  # untouched by the copy
    [said] = unknown(["TFRUN_SERVE_COMPRESS", "TFRUN_SERVE_SLOTS"], run, VERBS)
    assert "TFRUN_SERVE_COMPRESS has no effect" in said


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_stands_first_and_alone(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for args in ([], ["train.py", verb], ["-n", "2", verb], ["--", verb], [f"./{verb}"]):
        assert command_for(args) == (run, args, "tfrun")
    Path(verb).mkdir()
    assert command_for([verb])[0] is not run
    Path(verb).rmdir()
    Path(verb).write_text("")
    assert command_for([verb, "x"]) == (run, [verb, "x"], "tfrun")


def test_help_and_version() -> None:
    def output(*args: str) -> str:
        command = [sys.executable, "-m", "tfrun", *args]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert result.stderr == ""
        return result.stdout

    assert output("--version") == f"tfrun, version {tfrun.__version__}\n"
    text = output("--help")
    assert text == output("-h")
    for verb in VERBS:
        assert f"  {verb} " in text
        assert output(verb, "--help").startswith(f"Usage: tfrun {verb} ")
    for opts, _, _, hidden in SURFACE.values():
        assert (opts[-1] in text) is not hidden


def every_command() -> list[click.Command]:
    found = [run]
    for verb in VERBS:
        command, *_ = command_for([verb])
        found += command.commands.values() if isinstance(command, click.Group) else [command]
    return found


def test_what_is_no_number_is_no_number_of_any_option() -> None:
    """click's own types take nan and inf, with which nothing compares, and no clock goes."""
    kinds = [p.type for command in every_command() for p in command.params]
    numbers = [kind for kind in kinds if isinstance(kind, click.types.FloatParamType)]
    assert len(numbers) > 5 and all(isinstance(kind, Number) for kind in numbers)
    for kind in numbers:
        for wrong in ("nan", "inf", "-inf", "1e300"):
            with pytest.raises(click.BadParameter):
                kind.convert(wrong, None, None)
        assert kind.convert("0.5", None, None) == 0.5


def test_every_variable_that_tfrun_knows_is_known() -> None:
    """Else a job of a job would be told that tfrun's own variables have no effect."""
    source = Path(tfrun.__file__).parent
    text = "".join(path.read_text() for path in source.rglob("*.py"))
    names = set(re.findall(r"\"(TFRUN_[A-Z_]*[A-Z])\"", text))
    names -= {f"TFRUN_{verb.upper()}" for verb in VERBS}  # only what their variables begin with
    assert len(names) > 20 and not list(unknown(names, run, VERBS))
