"""The metrics, read by Prometheus' own parser; and the dashboard that is made of them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tfrun.observe import prometheus

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "tfrun-job.json"
DOCS = Path(__file__).parents[2] / "docs" / "observe.md"
TASK = {
    **{"task": "worker:0", "host": 'a "quoted"\\host\n', "state": "running", "step": 17},
    **{"round": 3, "since_round": 3},
    **{"step_seconds": 0.12, "own_seconds": 0.08, "samples_per_second": 500.0, "reported": 9.0},
    "network_seconds": 0.03,
    **{"rss_bytes": 1 << 30, "cpu_share": 1.7, "gpu_bytes": None},
    "split": {"input": 0.01, "compute": 0.06, "communication": 0.04, "other": 0.01},
}
VIEW: dict[str, Any] = {
    **{"name": "digits", "script": "examples/digits.py", "state": "training", "started": 1.5},
    **{"seconds": 12.5, "restarts": 2, "workers": {"up": 2, "down": 0, "low": 1, "high": 2}},
    "round": {"number": 3},
    "tasks": [
        TASK,
        {**TASK, "task": "worker:1", "gpu_bytes": 5, "state": "gone", "since_round": 0},
    ],
    "training": {
        **{"epoch": 1, "epochs": 5, "step": 17, "done": 0.25, "seconds_left": None},
        **{"global_batch": 128, "samples_per_second": 900.0, "steps_per_second": 7.0},
        **{"step_seconds": 0.14, "split": TASK["split"], "staleness": [30, 4, 0, 1]},
        "logs": {"loss": "NaN", "accuracy": 0.5, "worst": "-Infinity", "flag": True},
    },
    "changes": {
        **{"recovered": 302, "grown": 1, "machine_preempted": 0, "in_place": 300, "afresh": 3},
        **{"seconds": 33.5, "lost_steps": 3},
    },
    "successors": {"starting": 1, "ready": 2, "given_up": False, "each": []},
    "stragglers": [{"task": "worker:1", "until": None}, {"task": "worker:0", "until": 5.0}],
    "goodput": {"share": 0.8, "parts": {"training": 10.0, "start": 2.5}},
    "checkpoint": {"step": 10, "time": 8.0},
}


def parsed(view: dict[str, Any]) -> dict[str, Any]:
    """The families by name, with the samples as {labels: value}."""
    families = list(text_string_to_metric_families(prometheus.exposition(view).decode()))
    assert len({family.name for family in families}) == len(families)
    return {
        sample.name: {
            tuple(sorted(one.labels.items())): one.value
            for one in family.samples
            if one.name == sample.name
        }
        for family in families
        for sample in family.samples
    }


def test_all_of_a_job_is_there() -> None:
    found = parsed(VIEW)
    plain = {name: next(iter(values.values())) for name, values in found.items() if () in values}
    assert plain["tfrun_job_run_seconds"] == 12.5
    assert plain["tfrun_restarts_total"] == 2
    assert plain["tfrun_recovery_seconds_total"] == 33.5
    assert plain["tfrun_lost_steps_total"] == 3
    assert plain["tfrun_step"] == 17
    assert plain["tfrun_goodput_ratio"] == 0.8
    assert plain["tfrun_checkpoint_step"] == 10
    assert "tfrun_remaining_seconds" not in found  # not known: no value, rather than a wrong one
    states = found["tfrun_job_state"]
    assert sum(states.values()) == 1 and states[(("state", "training"),)] == 1
    assert found["tfrun_round_changes_total"][(("kind", "recovered"),)] == 302
    assert found["tfrun_round_changes_by_start_total"][(("start", "in_place"),)] == 300
    assert plain["tfrun_workers_stayed"] == 1
    waiting = found["tfrun_successors"]
    assert waiting == {(("state", "starting"),): 1, (("state", "ready"),): 2}
    first = (("host", TASK["host"]), ("task", "worker:0"))  # quotes, \ and line ends come back
    second = (("host", TASK["host"]), ("task", "worker:1"))
    assert found["tfrun_worker_resident_memory_bytes"][first] == 1 << 30
    assert found["tfrun_worker_gpu_memory_bytes"] == {second: 5}
    assert found["tfrun_worker_up"] == {first: 1, second: 0}
    assert found["tfrun_worker_straggler"] == {first: 0, second: 1}
    assert (
        found["tfrun_worker_step_part_seconds"][tuple(sorted((*first, ("part", "compute"))))]
        == 0.06
    )
    assert found["tfrun_staleness_steps"][(("updates", "1"),)] == 4
    logs = found["tfrun_training_metric"]
    assert math.isnan(logs[(("metric", "loss"),)])
    assert logs[(("metric", "worst"),)] == -math.inf
    assert logs[(("metric", "accuracy"),)] == 0.5 and (("metric", "flag"),) not in logs


def test_a_job_that_has_not_begun_has_metrics_too() -> None:
    found = parsed({"state": "waiting", "training": None, "checkpoint": None})
    assert found["tfrun_job_state"][(("state", "waiting"),)] == 1
    assert "tfrun_step" not in found


def types(view: dict[str, Any]) -> dict[str, str]:
    """The type of each metric, as the text says it."""
    text = prometheus.exposition(view).decode()
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))


def test_names_and_types_are_as_prometheus_wants_them() -> None:
    found = types(VIEW)
    assert {found[name] for name in found} == {"counter", "gauge"}
    for name, kind in found.items():
        assert re.fullmatch(r"tfrun_[a-z_]+[a-z]", name)
        assert (kind == "counter") == name.endswith("_total")
        assert not re.search(r"_(ms|millis|mb|mib|percent|minutes)(_|$)", name)
    helps = re.findall(r"^# HELP (.*)$", prometheus.exposition(VIEW).decode(), re.MULTILINE)
    assert len(helps) == len(found) and all(text.endswith(".") for text in helps)


def test_the_dashboard_and_the_documentation_name_metrics_that_exist() -> None:
    names = set(types(VIEW))
    dashboard = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for text in asked for name in re.findall(r"\btfrun_\w+", text)}
    assert len(used) > 10 and used <= names
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    documented = set(re.findall(r"`(tfrun_\w+)`", DOCS.read_text()))
    assert documented == names
