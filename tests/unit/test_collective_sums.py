"""The host collective against numpy: any number of workers, sizes and dtypes, over real sockets."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrun.collective import shared_memory_sums as shared_module
from tfrun.collective.collective import SMALL_BYTES, Collective
from tfrun.collective.form_collective import form
from tfrun.collective.links import Patience
from tfrun.collective.peer_listener import PeerListener

SECONDS = 20.0
MACHINES = [(2,), (5,), (2, 2), (1, 3, 2), (2, 1, 1)]  # workers that share memory
DTYPES = ["float32", "float64", "float16", "int32", "int64", ml_dtypes.bfloat16]


@contextlib.contextmanager
def collectives(
    world: int,
    timeout: float | None = SECONDS,
    machines: tuple[int, ...] = (),
    folder: str = "",
    compress: str | list[str] = "",
    residuals: Path | None = None,
    small_bytes: int | list[int] = SMALL_BYTES,
    tell: Callable[[int], None] = lambda rank: None,
) -> Iterator[list[Collective]]:
    """Connected with each other over loopback, by rank.

    Args:
      world: how many.
      timeout: of their patience.
      machines: how many share memory, machine by machine; by default nobody does.
      folder: under which each machine has a directory.
      compress: as what gradients travel, or that for each rank.
      residuals: as for `form`.
      small_bytes: likewise, or that for each rank.
      tell: is called with the rank of one that has waited for some seconds.
    """
    ways = [compress] * world if isinstance(compress, str) else compress
    small = [small_bytes] * world if isinstance(small_bytes, int) else small_bytes
    listeners = [PeerListener(rank, world, "secret", "127.0.0.1") for rank in range(world)]
    folders: list[Path | None] = [None] * world
    if machines:
        owners = [machine for machine, count in enumerate(machines) for _ in range(count)]
        folders = [Path(folder, str(machine)) for machine in owners]
        for path in folders:
            path.mkdir(exist_ok=True)
    places = [("127.0.0.1", listener.port) for listener in listeners]

    def meet(rank: int) -> Collective:
        return form(
            listeners[rank],
            rank,
            world,
            places,
            folder=folders[rank],
            patience=Patience(timeout=timeout, tell=lambda: tell(rank)),
            compress=ways[rank],
            residuals=residuals,
            small_bytes=small[rank],
        )

    groups = at_once([lambda r=rank: meet(r) for rank in range(world)])
    assert not [file for path in folders if path for file in path.iterdir()]  # gone with its users
    try:
        yield groups
    finally:
        for end in (*groups, *listeners):
            end.close()


def at_once(works: list[Callable[[], Any]]) -> list[Any]:
    """What each gives, or the first error by position."""
    found: dict[int, Any] = {}

    def note(i: int, work: Callable[[], Any]) -> None:
        try:
            found[i] = work()
        except BaseException as error:
            found[i] = error

    threads = [threading.Thread(target=note, args=(i, work)) for i, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a deadlock"
    for i in range(len(works)):
        if isinstance(found[i], BaseException):
            raise found[i]
    return [found[i] for i in range(len(works))]


def bits(tensors: list[np.ndarray]) -> list[bytes]:
    return [tensor.tobytes() for tensor in tensors]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_module, "PIECE_BYTES", 1 << 12)
        found: dict = {w: stack.enter_context(collectives(w)) for w in (1, 2, 3, 4, 5, 8)}
        for machines in MACHINES:
            folder = str(tmp_path_factory.mktemp("memory"))
            sharing = collectives(sum(machines), machines=machines, folder=folder)
            found[machines] = stack.enter_context(sharing)
        yield found


shapes = st.lists(st.integers(0, 30), max_size=3).map(tuple)
tensors = st.lists(st.tuples(shapes, st.sampled_from(DTYPES)), min_size=1, max_size=6)


@settings(max_examples=60)
@given(
    which=st.sampled_from([1, 2, 3, 4, 5, 8, *MACHINES]),
    kinds=tensors,
    seed=st.integers(0, 1000),
    small=st.sampled_from([0, 256, 1 << 30]),
)
def test_sums(worlds: dict, which: Any, kinds: list, seed: int, small: int) -> None:
    groups = worlds[which]
    world = len(groups)
    random = np.random.default_rng(seed)
    # Whole numbers: every order of adding them up gives the same float.
    given_ = [
        [random.integers(-50, 50, shape).astype(dtype) for shape, dtype in kinds]
        for _ in range(world)
    ]
    before = [bits(mine) for mine in given_]
    for group in groups:
        group.small_bytes = small
    found = at_once([lambda r=r: groups[r].all_reduce(given_[r]) for r in range(world)])
    for group in groups:
        group.small_bytes = SMALL_BYTES
    for i, (shape, dtype) in enumerate(kinds):
        wanted = np.sum([given_[r][i].astype(np.float64) for r in range(world)], axis=0)
        for mine in found:
            assert mine[i].shape == shape and mine[i].dtype == np.dtype(dtype)
            assert (mine[i] == wanted.astype(dtype)).all()
    assert [bits(mine) for mine in given_] == before  # what came in is not written to


@pytest.mark.parametrize("which", [2, 3, 5, 8, *MACHINES], ids=str)
@pytest.mark.parametrize("count", [7, 1000, 50_001])
def test_the_same_bits_everywhere_and_each_time(worlds: dict, which: Any, count: int) -> None:
    groups = worlds[which]
    world = len(groups)
    random = np.random.default_rng(count)
    values = [
        [(random.standard_normal(count) * 10.0 ** random.integers(-8, 8, count)).astype(dtype)]
        for _ in range(world)
        for dtype in ["float32"]
    ]
    values[0][0][:2] = np.nan, np.inf

    def once() -> list[list[bytes]]:
        calls = [lambda r=r: bits(groups[r].all_reduce(values[r])) for r in range(world)]
        return at_once(calls)

    first, again = once(), once()
    assert first == again and all(mine == first[0] for mine in first)


def test_low_precision_is_added_up_in_float32(worlds: dict) -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        parts = [np.array([256.0], dtype)] + [np.array([0.5], dtype)] * 7
        found = at_once([lambda r=r, p=parts: worlds[8][r].all_reduce([p[r]]) for r in range(8)])
        wanted = np.array([259.5], np.float32).astype(dtype)
        assert all(mine[0] == wanted for mine in found)


@settings(max_examples=30)
@given(
    world=st.sampled_from([1, 2, 3, 5]),
    dtype=st.sampled_from([*DTYPES, "bool"]),
    rows=st.lists(st.integers(0, 9), min_size=5, max_size=5),
    columns=st.integers(0, 5),
)
def test_gathers_what_differs_in_size(
    worlds: dict, world: int, dtype: Any, rows: list[int], columns: int
) -> None:
    values = [
        [np.arange(rows[r] * columns).reshape(rows[r], columns).astype(dtype), np.array(r)]
        for r in range(world)
    ]
    found = at_once([lambda r=r: worlds[world][r].all_gather(values[r]) for r in range(world)])
    for mine in found:
        for i in range(2):
            for r in range(world):
                assert mine[i][r].dtype == values[r][i].dtype
                assert np.array_equal(mine[i][r], values[r][i])


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [0, 1, 50_000])
def test_broadcasts_bit_for_bit(worlds: dict, world: int, size: int) -> None:
    for root in range(world):
        values = [np.full(size, [-0.0, np.nan, 1e-40][r % 3], np.float32) for r in range(world)]
        calls = [
            lambda r=r, v=values, o=root: worlds[world][r].broadcast(v[r], o) for r in range(world)
        ]
        found = at_once(calls)
        assert all(mine.tobytes() == values[root].tobytes() for mine in found)


@pytest.mark.parametrize("lacking", [(1,), (0, 2), (3,), (0, 1, 2)])
def test_who_lacks_something_is_given_it(worlds: dict, lacking: tuple[int, ...]) -> None:
    has = [rank not in lacking for rank in range(4)]
    wanted = [np.arange(700_000.0), np.array(7, ml_dtypes.bfloat16), np.zeros(0), np.ones((3, 5))]

    def give(rank: int) -> list[np.ndarray]:
        mine = wanted if has[rank] else [np.full_like(array, 3) for array in wanted]
        worlds[4][rank].give(mine, has)
        return mine

    for mine in at_once([lambda r=r: give(r) for r in range(4)]):
        assert [array.tobytes() for array in mine] == [array.tobytes() for array in wanted]


def test_a_result_is_nobody_elses_while_it_is_held(worlds: dict) -> None:
    def twenty(r: int) -> list[float]:
        held = [worlds[3][r].all_reduce([np.full(9000, i, np.float32)])[0] for i in range(20)]
        assert all(array.ctypes.data % 64 == 0 for array in held)
        return [float(array[-1]) for array in held]

    for mine in at_once([lambda r=r: twenty(r) for r in range(3)]):
        assert mine == [3.0 * i for i in range(20)]


def test_memory_is_used_again(worlds: dict) -> None:
    def addresses(r: int) -> set[int]:
        mine = np.ones(1 << 18, np.float32)
        return {worlds[2][r].all_reduce([mine])[0].ctypes.data for _ in range(20)}

    for mine in at_once([lambda r=r: addresses(r) for r in range(2)]):
        assert len(mine) <= 2
