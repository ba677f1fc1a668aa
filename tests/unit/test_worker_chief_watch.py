"""When a server that was started by hand ends."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import replace

import pytest

from tfrun.cluster.address import Address
from tfrun.job.errors import TfrunError
from tfrun.job.settings import WorkerSettings
from tfrun.worker import chief_watch
from tfrun.worker.chief_watch import (
    AWAY_SECONDS,
    SILENT_SECONDS,
    Answer,
    Chief,
    ChiefVerdict,
    ChiefWatch,
    await_chief,
    chief_to_await,
)


def verdict(*looks: tuple[float, Answer], until: float = 100.0) -> ChiefVerdict:
    watch, found = ChiefWatch(until=until), ChiefVerdict.GO_ON
    for now, answer in looks:
        watch, found = watch.after(answer, now)
    return found


@pytest.mark.parametrize(
    ("looks", "found"),
    [
        ([(0, Answer.REFUSED), (99, Answer.SILENT)], ChiefVerdict.GO_ON),
        ([(0, Answer.REFUSED), (100, Answer.REFUSED)], ChiefVerdict.NEVER_CAME),
        ([(5, Answer.THERE), (500, Answer.THERE)], ChiefVerdict.GO_ON),
        ([(5, Answer.THERE), (5 + AWAY_SECONDS - 1, Answer.REFUSED)], ChiefVerdict.GO_ON),
        ([(5, Answer.THERE), (5 + AWAY_SECONDS, Answer.REFUSED)], ChiefVerdict.ENDED),
        # started anew in between
        ([(0, Answer.THERE), (4, Answer.REFUSED), (5, Answer.THERE), (8, Answer.REFUSED)],
         ChiefVerdict.GO_ON),
        ([(0, Answer.THERE), (SILENT_SECONDS - 1, Answer.SILENT)], ChiefVerdict.GO_ON),
        ([(0, Answer.THERE), (SILENT_SECONDS, Answer.SILENT)], ChiefVerdict.ENDED),
    ],
)  # fmt: skip
def test_what_follows_from_looks(looks: list[tuple[float, Answer]], found: ChiefVerdict) -> None:
    assert verdict(*looks) is found


def tf_config(**cluster: list[str]) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": "ps", "index": 0}})


def test_where_the_chief_is() -> None:
    whole = tf_config(chief=["[::1]:22"], worker=["a:1"], ps=["b:1"])
    served = WorkerSettings(await_chief=60)
    found = chief_to_await(served, whole)
    assert found == Chief(address=Address(host="::1", port=22), seconds=60)
    assert chief_to_await(WorkerSettings(), whole) is None
    patient = chief_to_await(replace(served, chief_away=300), whole)
    assert patient is not None and patient.away == 300
    assert chief_to_await(served, tf_config(worker=["a:1"], ps=["b:1"])) is None


def test_a_chief_that_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chief_watch, "LOOK_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(host="127.0.0.1", port=server.getsockname()[1])
        watching = threading.Thread(
            target=await_chief, args=(Chief(address=address, seconds=9, away=0.2),)
        )
        watching.start()
        connection, _ = server.accept()
        connection.close()
        assert watching.is_alive()
    watching.join(timeout=10)
    assert not watching.is_alive()
    with pytest.raises(TfrunError, match="did not come") as caught:
        await_chief(Chief(address=address, seconds=0.1))
    assert caught.value.code == "TFRUN-303"
