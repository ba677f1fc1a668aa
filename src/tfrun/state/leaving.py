"""Decides what a worker does that is told to leave its round, or is out of it. Pure.

    TRAINS ──told──▶ TOLD ──stays──▶ WAITS_TOLD ──told──▶ ENDS
       │                                 ▲
       └─stays─▶ WAITS ──told────────────┘

A worker that waits for its place in the next round is told to leave once, as all others are, who
may not know yet that it is out of this one; told again, there is no such place. With a place it
trains again.
"""

from __future__ import annotations

import enum


class Stand(enum.Enum):
    """Where a worker stands."""

    TRAINS = "in its round"
    TOLD = "in its round, which it was told to leave"
    WAITS = "out of its round, in its process"
    WAITS_TOLD = "out of its round, which it was told to leave"
    ENDS = "about to end"


class Heard(enum.Enum):
    """What happens to it."""

    LEAVE = "it is told to leave"
    STAYS = "it waits for its place in the next round"
    PLACED = "it has that place"


class Deed(enum.Enum):
    """What it does."""

    NOTHING = "nothing"
    LEAVE = "what is in a collective fails now; who has no state to keep ends now"
    KEEP_AND_END = "it keeps its state, and ends"


_NEXT: dict[tuple[Stand, Heard], tuple[Stand, Deed]] = {
    (Stand.TRAINS, Heard.LEAVE): (Stand.TOLD, Deed.LEAVE),
    (Stand.TRAINS, Heard.STAYS): (Stand.WAITS, Deed.NOTHING),
    (Stand.TOLD, Heard.LEAVE): (Stand.TOLD, Deed.LEAVE),
    (Stand.TOLD, Heard.STAYS): (Stand.WAITS_TOLD, Deed.NOTHING),
    (Stand.WAITS, Heard.LEAVE): (Stand.WAITS_TOLD, Deed.NOTHING),
    (Stand.WAITS, Heard.PLACED): (Stand.TRAINS, Deed.NOTHING),
    (Stand.WAITS_TOLD, Heard.LEAVE): (Stand.ENDS, Deed.KEEP_AND_END),
    (Stand.WAITS_TOLD, Heard.PLACED): (Stand.TRAINS, Deed.NOTHING),
}


def after(stand: Stand, heard: Heard) -> tuple[Stand, Deed]:
    """Returns where a worker stands then, and what it does; late news changes nothing."""
    return _NEXT.get((stand, heard), (stand, Deed.NOTHING))
