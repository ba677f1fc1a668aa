"""What `--communication auto` is, between workers without GPUs."""

from __future__ import annotations

import pytest

from tfrun.engine import communication

OURS = {"collective_key": "secret"}


def uses_host(explicit=None) -> bool:
    return communication.uses_host(2, explicit)


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [
        ({}, False),  # a cluster that others have started
        (OURS, True),
        ({**OURS, "communication": "auto"}, True),
        ({**OURS, "communication": "ring"}, False),
        ({"communication": "host"}, True),
        ({**OURS, "preferred": "ring"}, False),
        ({"preferred": "host"}, True),
        ({**OURS, "preferred": "host", "communication": "ring"}, False),
        ({"compress": "bf16"}, True),
        # The ring was measured as faster, but it does not compress.
        ({**OURS, "preferred": "ring", "compress": "bf16"}, True),
    ],
)
def test_the_way_of_auto(work_under, stated: dict[str, str], wanted: bool) -> None:
    work_under(**stated)
    assert uses_host() is wanted


def test_what_a_script_names_is_taken(work_under) -> None:
    work_under(**OURS)
    named = communication.CommunicationOptions(implementation=communication.Implementation.RING)
    assert not uses_host(named)
