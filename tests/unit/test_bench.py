"""Sizes, the link, and what follows from what was measured."""

from __future__ import annotations

import dataclasses
import io
import socket
import threading

import pytest
from rich.console import Console

from tfrun.collective.peer_listener import listen
from tfrun.job.bench_results import BenchSettings
from tfrun.job.errors import UsageError
from tfrun.job.reports import Measured
from tfrun.tools.bench import link
from tfrun.tools.bench.report import (
    BenchReport,
    print_report,
    recommendation,
    to_remember,
    way_of,
)
from tfrun.tools.bench.sizes import best_pack, parse_sizes, switch_point, times, written


def test_sizes_are_read_as_people_write_them() -> None:
    assert parse_sizes("1M, 64K,100,1m", where="--sizes") == (100, 64 << 10, 1 << 20)
    assert [written(size) for size in (100, 64 << 10, 1 << 20, 3 << 29)] == [
        *("100 B", "64 KiB", "1 MiB", "1.5 GiB"),
    ]


@pytest.mark.parametrize("text", ["", "x", "1T", "3", "-1", "1,,2", "5G", "9" * 50, "²K", "K"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"TFRUN-105.*--model") as caught:
        parse_sizes(text, where="--model")
    assert caught.value.exit_code == 2


def test_up_to_where_doubling_is_faster() -> None:
    assert switch_point([(16, 2.0, 1.0), (32, 2.0, 1.5), (64, 2.0, 2.5), (128, 3.0, 1.0)]) == 32
    assert switch_point([(16, 1.0, 2.0), (32, 2.0, 1.0)]) == 0


def test_a_pack_is_another_one_when_it_is_clearly_faster() -> None:
    assert best_pack({1: 0.9, 4: 1.0, 16: 1.2}, usual=4) == 1
    assert best_pack({1: 0.96, 4: 1.0, 16: 1.2}, usual=4) == 4


def test_what_later_jobs_are_to_know() -> None:
    ring = way_of("ring", dataclasses.replace(found(0.04), pack_bytes=1 << 20))
    host = way_of("host", dataclasses.replace(found(0.02), small_bytes=128 << 10))
    both = dataclasses.replace(report(), ways=(host, ring))
    wanted = BenchSettings(
        communication="host", small_bytes=128 << 10, pack_bytes=1 << 20, date="2026-11-22"
    )
    assert to_remember(both, "2026-11-22") == wanted
    assert recommendation(both)[0].endswith("--communication host, in one exchange up to 128 KiB")
    assert to_remember(dataclasses.replace(both, gpus=True), "2026-11-22") is None
    assert to_remember(dataclasses.replace(both, ways=(host,)), "2026-11-22") is None


def test_large_sums_are_measured_less_often() -> None:
    assert [times(size) for size in (4, 11 << 20, 1 << 30)] == [100, 23, 5]


def found(step: float, *sums: tuple[int, float]) -> Measured:
    return Measured(
        **{"workers": 4, "link": None, "gpus": False, "threads": 1},
        all_reduce=[{"bytes": size, "seconds": [2 * s, s, s / 2]} for size, s in sums],
        step_seconds=[step, step * 9, step / 2],
    )


def report(link: float | None = 2e9) -> BenchReport:
    slow = way_of("slow", found(0.04, (1 << 20, 0.002)))
    fast = way_of("fast", found(0.02, (1 << 20, 0.001)))
    return BenchReport(
        workers=4,
        threads=1,
        link=link,
        model=11 << 20,
        batch=64,
        alone=0.01,
        ways=(fast, slow),
        failed={"broken": "the job that measures broken ended with 1"},
    )


def test_the_fastest_step_is_recommended_and_what_it_waits_is_said() -> None:
    first, second = recommendation(report())
    assert first == "recommended: --communication fast"
    assert second.startswith("10 of 20 ms a step are waiting")


def test_the_report_has_efficiency_and_the_share_of_the_link() -> None:
    out = io.StringIO()
    print_report(report(), Console(file=out, width=100))
    text = out.getvalue()
    assert "4 workers, fast" in text and "50%" in text and "25%" in text
    # 1 MiB in 1 ms; a ring of four sends 1.5 times that over 2 GB/s.
    assert "79% of the link" in text and "broken did not run" in text
    fast = report().to_json()["ways"][0]
    assert fast["efficiency"] == 0.5 and fast["all_reduce"][0]["share_of_link"] == pytest.approx(
        0.786, abs=0.001
    )


def test_without_a_link_there_is_no_share() -> None:
    out = io.StringIO()
    print_report(report(None), Console(file=out, width=100))
    assert "link" not in out.getvalue()


def test_three_workers_measure_their_links_at_once() -> None:
    listening = [listen("") for _ in range(3)]
    ports = [one.getsockname()[1] for one in listening]
    rates: list[float] = []

    def measure(rank: int) -> None:
        rates.append(link.bytes_per_second(listening[rank], "127.0.0.1", ports[(rank + 1) % 3]))

    threads = [threading.Thread(target=measure, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for one in listening:
        one.close()
    assert len(rates) == 3 and min(rates) > 0


def test_a_neighbour_that_leaves_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "CONNECT_SECONDS", 5.0)
    with listen("") as listening, socket.create_server(("127.0.0.1", 0)) as other:
        socket.create_connection(listening.getsockname()[:2]).close()
        with pytest.raises(OSError):
            link.bytes_per_second(listening, "127.0.0.1", other.getsockname()[1])
