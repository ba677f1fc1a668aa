"""Work that nobody waits for fails loudly, and is not lost while it goes on."""

from __future__ import annotations

import asyncio
import gc

from tfrun.agent.background import Background


def test_a_failure_is_told_and_an_end_is_not() -> None:
    asyncio.run(_both())


async def _both() -> None:
    told: list[str] = []
    background, may, done = Background(told.append), asyncio.Event(), asyncio.Event()

    async def starts_a_successor() -> None:
        raise TypeError("unexpected keyword")

    async def goes_on() -> None:
        await may.wait()
        done.set()

    background.run(goes_on())
    background.run(starts_a_successor())
    gc.collect()
    may.set()
    await asyncio.wait_for(done.wait(), 10)
    (line,) = told
    assert "starts_a_successor failed: TypeError: unexpected keyword" in line
