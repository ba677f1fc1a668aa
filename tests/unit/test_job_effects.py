"""An option that would change nothing is refused, and none that has its effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfrun.job.effects import Shape, check
from tfrun.job.errors import UsageError

PLAIN = Shape(
    **{"least": 2, "most": 2, "ps": 0, "communication": "auto", "compress": "off"},
    **{"overlap": "auto", "sync_check": 0, "snapshot_every": "auto", "saves": True},
    **{"max_restarts": 3, "steps_per_execution": "script"},
)


@pytest.mark.parametrize(
    ("option", "changes"),
    [
        ("rejoin_timeout", {}),
        ("rejoin_timeout", {"most": 1, "least": 1}),
        ("communication", {"least": 1, "most": 1, "communication": "ring"}),
        ("overlap", {"least": 1, "most": 1, "overlap": "on"}),
        ("sync_check", {"least": 1, "most": 1, "sync_check": 3}),
        ("compress", {"least": 1, "most": 1, "compress": "bf16"}),
        ("communication", {"ps": 1, "communication": "host"}),
        ("overlap", {"ps": 1, "overlap": "on"}),
        ("sync_check", {"ps": 1, "sync_check": 3}),
        ("steps_per_execution", {"ps": 1, "steps_per_execution": "auto"}),
        ("overlap", {"communication": "ring", "overlap": "on"}),
        ("overlap", {"communication": "nccl", "overlap": "on"}),
        ("keep", {"saves": False}),
        ("checkpoint_dir", {"saves": False}),
        ("snapshot_every", {"max_restarts": 0, "snapshot_every": "10"}),
    ],
)
def test_no_effect_is_refused(option: str, changes: dict) -> None:
    job = replace(PLAIN, **changes)
    with pytest.raises(UsageError, match="TFRUN-107: --" + option.replace("_", "-")) as error:
        check({option, "workers"}, job)
    assert error.value.exit_code == 2
    check({"workers"}, job)  # said by a variable, for all jobs of a person


@pytest.mark.parametrize(
    ("option", "changes"),
    [
        ("rejoin_timeout", {"least": 1}),
        ("communication", {"communication": "ring"}),
        ("communication", {"least": 1, "most": 1}),  # auto: as if it were not said
        ("overlap", {"overlap": "off", "communication": "ring"}),
        ("overlap", {"overlap": "on", "communication": "host"}),
        ("sync_check", {"sync_check": 3}),
        ("sync_check", {"least": 1, "most": 1}),
        ("compress", {"least": 1, "compress": "fp16"}),
        ("keep", {}),
        ("snapshot_every", {"max_restarts": 0, "snapshot_every": "0"}),
    ],
)
def test_what_has_its_effect_is_taken(option: str, changes: dict) -> None:
    check({option}, replace(PLAIN, **changes))
