"""The line at the beginning of a training, and when it is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfrun.job.reports import Training
from tfrun.observe.event_lines import training_line
from tfrun.observe.terminal import Terminal

SCALED = {"rate": 0.4, "rule": "linear", "base": 0.1, "base_batch": 64, "warmup_steps": 500}


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (
            {"global_batch": 8, "workers": 2, "compression": "gradients travel as bfloat16"},
            "global batch 8 · 4 a worker (2 workers) · gradients travel as bfloat16",
        ),
        (
            {"global_batch": 256, "workers": 4, "rate": SCALED},
            "global batch 256 · 64 a worker (4 workers) · "
            "learning rate 0.4 (linear rule: 0.1 at batch 64, warm-up of 500 steps)",
        ),
        (
            {"global_batch": 256, "workers": 3, "rate": {"rate": 0.1}},
            "global batch 256 · at most 86 a worker (3 workers) · learning rate 0.1",
        ),
        (
            {"global_batch": 32, "workers": 1, "rate": {"schedule": "CosineDecay"}},
            "global batch 32 · 1 worker · learning rate by CosineDecay",
        ),
        (
            {"global_batch": 128, "workers": 4, "script_batch": 32, "rate": SCALED},
            "global batch 128 = 4 x 32 of the script · 32 a worker (4 workers) · "
            "learning rate 0.4 (linear rule: 0.1 at batch 64, warm-up of 500 steps)",
        ),
        (
            {
                **{"global_batch": 50, "workers": 1, "script_batch": 32},
                "rate": {**SCALED, "schedule": "CosineDecay", "rule": "sqrt", "factor": 1.25},
            },
            "global batch 50 (32 in the script) · 1 worker · "
            "learning rate by CosineDecay x 1.25 (sqrt rule, warm-up of 500 steps)",
        ),
        (
            {"global_batch": None, "workers": 2, "rate": {}},
            "global batch: known to the script alone · 2 workers",
        ),
    ],
)
def test_the_line(report, line):
    assert training_line(Training(samples=None, **report)) == line


def test_it_is_shown_once_for_what_has_not_changed(capsys):
    terminal = Terminal(prefix_all=False, chief="worker:0")
    first = Training(global_batch=64, samples=None, workers=2, rate={"rate": 0.1})
    shrunk = replace(first, workers=1)
    terminal.report("worker:1", first)  # only the chief's word counts
    for report in (first, first, replace(first, rate={"rate": 0.05}), shrunk, shrunk):
        terminal.report("worker:0", report)
        terminal.next_round()
    terminal.close()
    assert capsys.readouterr().err.splitlines() == [
        "tfrun: global batch 64 · 32 a worker (2 workers) · learning rate 0.1",
        "tfrun: global batch 64 · 1 worker · learning rate 0.1",
    ]
