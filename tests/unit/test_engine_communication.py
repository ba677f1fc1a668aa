"""What `--communication auto` is, between workers without GPUs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfrun.engine import communication
from tfrun.job.errors import UsageError

OURS = {"TFRUN_COLLECTIVE_KEY": "secret"}


def uses_host(monkeypatch: pytest.MonkeyPatch, explicit=None, **environment: str) -> bool:
    variables = ("COMMUNICATION", "COMPRESS", "PREFERRED", "COLLECTIVE_KEY")
    for name in (f"TFRUN_{variable}" for variable in variables):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    extended = SimpleNamespace(_num_workers=2, _local_device_type="CPU")
    return communication.uses_host(SimpleNamespace(extended=extended), explicit)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),  # a cluster that others have started
        (OURS, True),
        ({**OURS, "TFRUN_COMMUNICATION": "auto"}, True),
        ({**OURS, "TFRUN_COMMUNICATION": "ring"}, False),
        ({"TFRUN_COMMUNICATION": "host"}, True),
        ({**OURS, "TFRUN_PREFERRED": "ring"}, False),
        ({"TFRUN_PREFERRED": "host"}, True),
        ({**OURS, "TFRUN_PREFERRED": "host", "TFRUN_COMMUNICATION": "ring"}, False),
        ({"TFRUN_COMPRESS": "bf16"}, True),
        # The ring was measured as faster, but it does not compress.
        ({**OURS, "TFRUN_PREFERRED": "ring", "TFRUN_COMPRESS": "bf16"}, True),
    ],
)
def test_the_way_of_auto(monkeypatch, environment: dict[str, str], wanted: bool) -> None:
    assert uses_host(monkeypatch, **environment) is wanted


def test_what_a_script_names_is_taken(monkeypatch) -> None:
    named = communication.CommunicationOptions(implementation=communication.Implementation.RING)
    assert not uses_host(monkeypatch, named, **OURS)


@pytest.mark.parametrize(
    ("variable", "ask"),
    [
        ("TFRUN_OVERLAP", communication.overlap),
        ("TFRUN_COMPRESS", communication.compression.wanted),
    ],
)
def test_a_setting_that_nobody_knows_is_named(monkeypatch, variable: str, ask) -> None:
    monkeypatch.delenv(variable, raising=False)
    assert ask() in ("auto", "")
    monkeypatch.setenv(variable, "maybe")
    with pytest.raises(UsageError) as caught:
        ask()
    assert caught.value.code == "TFRUN-105" and caught.value.where == variable
