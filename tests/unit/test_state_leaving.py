"""What a worker does that is told to leave its round, and what one does that is out of it."""

from __future__ import annotations

import itertools

import pytest

from tfrun.state.leaving import Deed, Heard, Stand, after

LEAVE, STAYS, PLACED = Heard.LEAVE, Heard.STAYS, Heard.PLACED


def told(*heard: Heard) -> tuple[Stand, list[Deed]]:
    """Where a worker stands after all of this, and what it has done."""
    stand, deeds = Stand.TRAINS, []
    for one in heard:
        stand, deed = after(stand, one)
        deeds += [deed] if deed is not Deed.NOTHING else []
    return stand, deeds


@pytest.mark.parametrize(
    ("heard", "stand", "deeds"),
    [
        # A peer has gone: those that cannot stay leave, and are told so again and again.
        ((LEAVE,), Stand.TOLD, [Deed.LEAVE]),
        ((LEAVE, LEAVE), Stand.TOLD, [Deed.LEAVE, Deed.LEAVE]),
        # It has noticed by itself: the word that comes then is no second one.
        ((STAYS,), Stand.WAITS, []),
        ((STAYS, LEAVE), Stand.WAITS_TOLD, []),
        ((LEAVE, STAYS), Stand.WAITS_TOLD, [Deed.LEAVE]),
        ((STAYS, LEAVE, LEAVE), Stand.ENDS, [Deed.KEEP_AND_END]),
        ((LEAVE, STAYS, LEAVE), Stand.ENDS, [Deed.LEAVE, Deed.KEEP_AND_END]),
        # In the next round all begins anew.
        ((STAYS, LEAVE, PLACED), Stand.TRAINS, []),
        ((STAYS, PLACED, STAYS, LEAVE), Stand.WAITS_TOLD, []),
        ((STAYS, PLACED, LEAVE), Stand.TOLD, [Deed.LEAVE]),
        # What ends hears of nothing any more.
        ((STAYS, LEAVE, LEAVE, LEAVE, PLACED), Stand.ENDS, [Deed.KEEP_AND_END]),
    ],
)
def test_who_leaves_and_who_waits(
    heard: tuple[Heard, ...], stand: Stand, deeds: list[Deed]
) -> None:
    assert told(*heard) == (stand, deeds)


def test_only_one_that_waits_keeps_and_ends_and_nobody_with_a_place_is_told_before() -> None:
    for heard in itertools.product(Heard, repeat=6):
        stand, deeds = told(*heard)
        assert (stand is Stand.ENDS) == (Deed.KEEP_AND_END in deeds)
        if heard[-1] is PLACED and stand is not Stand.ENDS:
            assert told(*heard, LEAVE)[0] is not Stand.ENDS
