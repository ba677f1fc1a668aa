"""The values that each option of `tfrun SCRIPT` is tested with, its effects, and what is refused.

The test takes the options from the command line itself: one that is missing here fails it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tfrun.observe.events import read_events

TFRUN = Path(sys.executable).with_name("tfrun")
STEPS = 8  # of the script, in two epochs


class Job(NamedTuple):
    """A job that has ended.

    Attributes:
      chosen: the value of each option that it was given, by the option's name in Python; a flag's
        is "yes".
      mode: how the script trains.
      found: what the script has written.
      out: standard output.
      err: standard error.
      folder: with "run", the run directory, and what else the options name.
    """

    chosen: Mapping[str, str]
    mode: str
    found: Mapping[str, Any]
    out: str
    err: str
    folder: Path

    @property
    def saved(self) -> list[str]:
        where = Path(self.chosen.get("checkpoint_dir", "run/checkpoints"))
        return sorted(path.name for path in (self.folder / where).glob("ckpt-*"))

    def of_job(self, name: str) -> Any:
        return json.loads((self.folder / "run/job.json").read_text())[name]

    def events(self, kind: str) -> list[Mapping[str, Any]]:
        told = read_events(self.folder / "run/events.jsonl")
        return [event for event in told if event["event"] == kind]


Effect = Callable[[Job, str], object]


def _timeout(name: str) -> Effect:
    """The job has this time-out, which it does not reach; its effect is tested elsewhere."""
    return lambda job, value: job.of_job("timeouts")[name] == float(value)


def _snapshots(job: Job, every: str) -> bool:
    """Whether the state was kept in memory after the right steps."""
    kept = job.found["snapshots"]
    if job.mode == "servers":  # which hold the state themselves
        return job.of_job("snapshot_every") == every
    due = {"2": [2, 4, 6, 8], "0": []}
    return every not in due or kept == due[every]


def _evaluator(job: Job, _: str) -> bool:
    return bool(list(job.folder.glob("run/logs/evaluator-0*.log")))


def _workers(job: Job, value: str) -> bool:
    wanted = int(value[-1])
    if job.mode == "servers":  # only the chief runs the script
        return len(list(job.folder.glob("run/logs/worker-?.log"))) == wanted
    return job.found["world"] == wanted


def _log_all(job: Job, _: str) -> bool:
    who = ["chief"] if job.mode == "servers" else [f"worker {n}" for n in range(job.found["world"])]
    return all(re.search(rf"{name}.*said by", job.out) for name in who)


def _checkpoints(job: Job, value: str) -> bool:
    """Whether the right steps are saved: those that are due, and as many as are kept."""
    due = {"2": [2, 4, 6, 8], "epoch": [4, 8], "off": []}[value]
    keep = int(job.chosen.get("keep", "5"))
    # What is written last may come with the next; the background writer passes over what has
    # become old before it is written.
    steps = [int(name.removeprefix("ckpt-")) for name in job.saved]
    return set(steps) <= {*due, STEPS} and len(steps) <= keep and bool(steps) == bool(due)


def _executions(job: Job, value: str) -> bool:
    if value == "auto":
        return job.of_job("steps_per_execution") == "auto"
    return job.found["calls"]["batch_end"] == STEPS // int(value)


def _ledger(job: Job, value: str) -> bool:
    command = [TFRUN, "ledger", "--json", job.folder / "run"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    report = json.loads(told.stdout)
    return report["jobs"] == 1 or (job.mode == "servers" and bool(report["not_covered"]))


def _shares(job: Job, _: str) -> bool:
    if job.mode == "loop":
        return "--shard-optimizer is for `fit`" in job.err
    return "the optimizer's state is shared by" in job.err


# By the option's name in Python: its values, and whether one has had its effect.
OPTIONS: dict[str, tuple[tuple[str, ...], Effect]] = {
    "workers": (("1", "2", "3", "1:2"), _workers),
    "max_staleness": (("1",), lambda job, k: job.found["max staleness"] == int(k)),
    "evaluator": (("yes",), _evaluator),
    "module": (("yes",), lambda job, _: job.of_job("program")["is_module"]),
    "run_dir": (("run",), lambda job, _: (job.folder / "run/job.json").exists()),
    "log_all": (("yes",), _log_all),
    "join_timeout": (("60",), _timeout("join_timeout")),
    "rejoin_timeout": (("1",), _timeout("rejoin_timeout")),
    "grace": (("5",), _timeout("preempt_grace")),
    "hang_timeout": (("60",), _timeout("hang_timeout")),
    "in_place": (("yes",), lambda job, _: job.of_job("in_place") == "on"),
    "shard_optimizer": (("yes",), _shares),
    "spares": (("1",), lambda job, k: job.of_job("spares") == int(k)),
    "strategy": (("script",), lambda job, value: job.of_job("strategy") == value),
    "replicas": (("2",), lambda job, count: job.found["replicas"] == int(count)),
    "balance": (("auto",), lambda job, value: job.of_job("balance") == value),
    "communication": (
        ("host", "ring"),
        lambda job, way: job.found["host collective"] == (way == "host"),
    ),
    "compress": (("bf16", "fp16"), lambda job, way: job.of_job("compress") == way),
    "overlap": (("on", "off"), lambda job, way: job.found["overlaps"] == (way == "on")),
    "measured": (("no",), lambda job, _: "tfrun bench" not in job.err),
    "threads_per_worker": (("1", "2"), lambda job, n: job.found["threads"] == n),
    "start_method": (("fork", "fresh"), lambda job, way: job.found["forked"] == (way == "fork")),
    "seed": (("3",), lambda job, _: job.found["drawn"] == 0.23796462709189137),
    "sync_check": (("2",), lambda job, _: job.found["calls"]["sync_checks"] >= STEPS // 4),
    "strict": (("yes",), lambda job, _: job.of_job("strict")),
    "max_restarts": (("0", "2"), lambda job, n: job.of_job("max_restarts") == int(n)),
    "snapshot_every": (("2", "0", "1s"), _snapshots),
    "steps_per_execution": (("2", "auto"), _executions),
    "checkpoint_dir": (("saved",), lambda job, _: (job.folder / "saved").is_dir()),
    "checkpoint_every": (("2", "epoch", "off"), _checkpoints),
    "keep": (("1", "2"), lambda job, n: len(job.saved) <= int(n)),
    "fresh": (("yes",), lambda job, _: job.found["calls"]["started_at"] == 0),
    "deterministic": (("yes",), lambda job, _: job.found["deterministic"]),
    "ledger": (("yes",), _ledger),
    "page": (("yes",), lambda job, _: "http://" in job.err),
    "plain": (("yes",), lambda job, _: "\x1b[" not in job.err),
    "tensorboard": (("board",), lambda job, _: list((job.folder / "board").rglob("*tfevents*"))),
}
# What shows only where something else happens: the test that shows it.
PROVED = {
    "balance": "cluster/test_balance.py::test_replicas_move_and_no_bit_changes",
    "compress": "options/test_effects.py::test_compressed_gradients_are_half_the_bytes",
    "fresh": "cluster/test_recovery_faults.py::test_a_fresh_start_puts_checkpoints_aside",
    "grace": "cluster/test_preemption.py"
    "::test_what_takes_longer_than_the_grace_period_ends_with_it",
    "hang_timeout": "cluster/test_recovery_faults.py::test_a_worker_that_hangs_is_replaced",
    "join_timeout": "options/test_effects.py::test_who_does_not_come_in_time_is_not_waited_for",
    "max_restarts": "cluster/test_recovery_control.py"
    "::test_a_crash_loop_ends_with_the_code_of_the_failure",
    "measured": "cluster/test_bench_jobs.py::test_two_workers_are_measured",
    "rejoin_timeout": "options/test_effects.py::test_a_lost_machine_is_waited_for",
    "in_place": "cluster/test_in_place.py::test_a_death_costs_no_process",
    "shard_optimizer": "cluster/test_sharded_optimizer.py"
    "::test_an_optimizer_ends_with_the_same_bits",
    "spares": "cluster/test_in_place.py::test_a_spare_that_is_ready_takes_the_place",
    "strategy": "cluster/test_trains_alone.py"
    "::test_who_trains_alone_is_told_at_once_and_at_the_end",
    "strict": "cluster/test_other_data.py::test_arrays_by_the_clock_end_a_strict_job",
}
# What is about other machines is refused here, and tested where there are some; so is what is for
# scripts without a strategy.
ELSEWHERE = {
    "scale_batch": "tests/cluster/test_scale_batch.py",
    "hosts": "tests/hosts",
    "hostfile": "tests/hosts",
    "cluster": "tests/hosts/test_ssh.py",
    "remote_python": "tests/hosts",
    "launcher_timeout": "tests/hosts/test_launcher_cut.py",
    "remote_dir": "tests/hosts",
    "env": "tests/hosts",
    "sync": "tests/hosts",
    "tls_cert": "tests/hosts",
    "tls_key": "tests/hosts",
    "ps": "the mode servers",
    "version": "tests/unit/test_cli_surface.py",
}


STAYS = ("in_place", "spares")
STARTS_AGAIN = ("steps_per_execution", "compress", "shard_optimizer")


def refused(mode: str, chosen: Mapping[str, str]) -> bool:
    """Whether these options contradict each other, or one would have no effect."""
    workers = chosen.get("workers", "1")
    between = {
        "communication": "communication" in chosen,
        "strategy": "strategy" in chosen,
        "compress": "compress" in chosen,
        "overlap": chosen.get("overlap") == "on",
        "sync_check": "sync_check" in chosen,
        "shard_optimizer": "shard_optimizer" in chosen,
    }
    saves = chosen.get("checkpoint_every") != "off"
    by_ring = chosen.get("communication") == "ring"
    several = mode != "servers" and not by_ring and chosen.get("strategy") != "script"
    in_turn = (":" in workers and several) or (
        bool({"replicas", "in_place"} & set(chosen)) and not by_ring
    )
    stays, costs = (bool(set(names) & set(chosen)) for names in (STAYS, STARTS_AGAIN))
    evaluates = mode == "evaluator" or "evaluator" in chosen
    return (
        ("rejoin_timeout" in chosen and ":" not in workers)
        or (any(between.values()) and (workers == "1" or mode == "servers"))
        or (chosen.get("communication") == "ring" and chosen.get("overlap") == "on")
        or (chosen.get("communication") == "ring" and "compress" in chosen)
        or ("replicas" in chosen and (mode == "servers" or "strategy" in chosen or workers == "3"))
        or ("replicas" in chosen and by_ring and workers != "2")
        or ("balance" in chosen and workers != "1:2")
        or ("balance" in chosen and "replicas" not in chosen and not several)
        or (stays and (mode == "servers" or workers == "1" or by_ring))
        or (stays and ("strategy" in chosen or chosen.get("max_restarts") == "0"))
        or (stays and "balance" in chosen)
        or ("spares" in chosen and "in_place" not in chosen and costs)
        or (in_turn and "steps_per_execution" in chosen)
        or ("shard_optimizer" in chosen and _not_shared(chosen, by_ring))
        or (mode == "servers" and "steps_per_execution" in chosen)
        or (mode == "servers" and "deterministic" in chosen and workers != "1")
        or ("max_staleness" in chosen and mode != "servers")
        or (not saves and (evaluates or bool({"keep", "checkpoint_dir"} & set(chosen))))
        or (chosen.get("max_restarts") == "0" and chosen.get("snapshot_every", "0") != "0")
    )


def _not_shared(chosen: Mapping[str, str], by_ring: bool) -> bool:
    """Whether something beside `--shard-optimizer` contradicts it, or has no effect."""
    recovers = chosen.get("max_restarts") != "0"
    return (
        by_ring
        or ":" in chosen.get("workers", "1")
        or bool({"compress", "in_place", "replicas"} & set(chosen))
        or chosen.get("overlap") == "on"
        or (recovers and chosen.get("snapshot_every") == "0")
    )


def doubted(mode: str, chosen: Mapping[str, str]) -> bool:
    """Whether an option has no effect on the script's own loop, which causes a warning."""
    about = {"checkpoint_dir", "checkpoint_every", "evaluator", "keep", "snapshot_every"}
    about |= {"shard_optimizer", "steps_per_execution", "sync_check"}
    return mode == "own loop" and bool(about & set(chosen))
