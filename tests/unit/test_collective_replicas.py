"""Several replicas a worker: over real sockets and shared memory the bits are those of one each."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_collective_compress import kept
from test_collective_summation_order import balanced, holdings, values
from test_collective_sums import DTYPES, at_once, bits, collectives

from tfrun.collective import exchange
from tfrun.collective import shared_memory_sums as shared_module
from tfrun.collective.collective import SMALL_BYTES, Collective
from tfrun.collective.counts import Gradients
from tfrun.collective.errors import Disagreement
from tfrun.collective.packing import sum_dtype
from tfrun.collective.summation_order import Adder, Holding

# Workers that share memory, machine by machine; or how many that share none.
WORLDS = [1, 2, 3, 5, (2,), (3,), (1, 3, 2)]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_module, "PIECE_BYTES", 1 << 12)
        patch.setattr(exchange, "BLOCK_BYTES", 1 << 10)
        yield {
            (which, compress): stack.enter_context(
                collectives(
                    which if isinstance(which, int) else sum(which),
                    machines=() if isinstance(which, int) else which,
                    folder=str(tmp_path_factory.mktemp("memory")),
                    compress=compress,
                )
            )
            for which in WORLDS
            for compress in ("", "bf16")
        }


def adds(group: Collective, tensors: list[list[np.ndarray]], holding: Holding) -> Adder:
    """This worker's replicas' tensors, added up as far as may be."""
    adder = Adder(holding.replicas)
    for replica in holding.held[group.rank]:
        adder.add(replica, tensors[replica])
    return adder


@settings(max_examples=60)
@given(
    which=st.sampled_from(WORLDS),
    data=st.data(),
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3),
    length=st.sampled_from([1, 100, 5000]),
    small=st.sampled_from([0, SMALL_BYTES, 1 << 30]),
    seed=st.integers(0, 1000),
)
def test_the_bits_do_not_depend_on_who_holds_what(
    worlds: dict, which: Any, data: st.DataObject, dtypes: list, length: int, small: int, seed: int
) -> None:
    groups = worlds[which, ""]
    holding = data.draw(holdings(len(groups)))
    by_dtype = [values(holding.replicas, dtype, seed, length) for dtype in dtypes]
    wanted = [
        balanced([t.astype(sum_dtype(t.dtype)) for t in tensors]).astype(tensors[0].dtype)
        for tensors in by_dtype
    ]
    tensors = [list(own) for own in zip(*by_dtype, strict=True)]

    def twice(group: Collective) -> list[np.ndarray]:
        group.hold(holding.held)
        group.small_bytes = small
        adder = adds(group, tensors, holding)
        first = group.all_reduce_parts(adder.take(), dtypes=adder.dtypes)
        # Of workers, in between: the machine's memory is divided otherwise.
        (count,) = group.all_reduce([np.ones(5000, np.int64)])
        assert (count == len(groups)).all()
        adder = adds(group, tensors, holding)
        again = group.all_reduce_parts(adder.take(), dtypes=adder.dtypes)
        assert bits(first) == bits(again)
        return again

    for found in at_once([lambda g=g: twice(g) for g in groups]):
        assert [tensor.dtype for tensor in found] == [np.dtype(dtype) for dtype in dtypes]
        assert bits(found) == bits(wanted)


@settings(max_examples=20)
@given(which=st.sampled_from(WORLDS), data=st.data(), dtype=st.sampled_from([*DTYPES, "bool"]))
def test_gathers_in_the_order_of_the_replicas(
    worlds: dict, which: Any, data: st.DataObject, dtype: Any
) -> None:
    groups = worlds[which, ""]
    holding = data.draw(holdings(len(groups)))
    rows = data.draw(st.lists(st.integers(0, 9), min_size=20, max_size=20))
    tensors = [
        [np.full((rows[replica], 3), replica).astype(dtype), np.array(replica)]
        for replica in range(holding.replicas)
    ]

    def gathered(group: Collective) -> list[list[np.ndarray]]:
        group.hold(holding.held)
        return group.all_gather_parts([tensors[replica] for replica in holding.held[group.rank]])

    for mine in at_once([lambda g=g: gathered(g) for g in groups]):
        for i, found in enumerate(mine):
            assert len(found) == holding.replicas
            for part, own in zip(found, tensors, strict=True):
                assert (part.dtype, part.shape) == (own[i].dtype, own[i].shape)
                assert np.array_equal(part, own[i])


@settings(max_examples=20)
@given(which=st.sampled_from(WORLDS[1:]), data=st.data(), seed=st.integers(0, 1 << 30))
def test_what_is_rounded_off_of_several_comes_later(
    worlds: dict, which: Any, data: st.DataObject, seed: int
) -> None:
    groups = worlds[which, "bf16"]
    holding = data.draw(holdings(len(groups)))
    random = np.random.default_rng(seed)
    exact, applied = np.zeros(5000), np.zeros(5000)
    for step in range(3):
        tensors = [[random.standard_normal(5000).astype(np.float32)] for _ in range(20)]
        tensors = tensors[: holding.replicas]
        gradients = Gradients(which=[0], name=f"g{seed}", version=step)

        def summed(group: Collective, mine: Any = tensors, how: Any = gradients) -> np.ndarray:
            group.hold(holding.held)
            group.small_bytes = 0
            return group.all_reduce_parts(adds(group, mine, holding).take(), how)[0]

        found = at_once([lambda g=g: summed(g) for g in groups])
        assert len({sums.tobytes() for sums in found}) == 1
        exact += np.sum([own[0] for own in tensors], axis=0, dtype=np.float64)
        applied += found[0]
    sending = [g for g in groups if g.crosses and (g._shared is None or g._shared.crosses)]
    rest = sum(kept(group, f"g{seed}", 3)[:5000] for group in sending)
    assert np.abs(applied + rest - exact).max() < 1e-6 * 3 * holding.replicas * 20


def test_who_holds_other_replicas_is_told() -> None:
    with collectives(2) as groups:
        groups[0].hold([[0], [1]])
        groups[1].hold([[0, 1], [2, 3]])
        with pytest.raises(Disagreement, match="other dtypes or shapes"):
            at_once([lambda g=g: g.all_reduce_parts([[np.ones(3)]]) for g in groups])
    with collectives(1) as (group,):
        group.hold([[0, 1, 2]])
        with pytest.raises(ValueError, match=r"2 parts, expected one for each of \[\(0, 3\)\]"):
            group.all_reduce_parts([[np.ones(3)], [np.ones(3)]])


WORKER = """
import sys
from pathlib import Path
import numpy as np
from tfrun.collective.form_collective import form
from tfrun.collective.peer_listener import PeerListener
from tfrun.collective.summation_order import Adder
rank, world, folder, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
listener = PeerListener(rank, world, "secret", "127.0.0.1")
print(listener.port, flush=True)
places = [("127.0.0.1", int(port)) for port in sys.stdin.readline().split()]
group = form(listener, rank, world, places, folder=Path(folder) if folder else None)
held = [list(range(4 * r // world, 4 * (r + 1) // world)) for r in range(world)]
group.hold(held)
assert group.shares_memory == (bool(folder) and world > 1)
for length in (10, 10_000, 600_000):
    adder = Adder(4)
    for replica in held[rank]:
        random = np.random.default_rng(length + replica)
        scale = np.float32(10) ** random.integers(-3, 4, length).astype(np.float32)
        adder.add(replica, [random.standard_normal(length, np.float32) * scale])
    with out.open("ab") as file:
        file.write(group.all_reduce_parts(adder.take(), dtypes=adder.dtypes)[0].tobytes())
group.all_reduce([np.zeros(1)])
"""


@pytest.mark.parametrize("shares", [False, True])
def test_four_replicas_on_one_to_four_processes(shares: bool, tmp_path: Path) -> None:
    found = []
    for world in (1, 2, 3, 4):
        memory = tmp_path / f"{world}"
        memory.mkdir()
        outs = [tmp_path / f"{world}-{rank}" for rank in range(world)]
        with contextlib.ExitStack() as stack:
            workers = [
                stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-c", WORKER, str(rank), str(world)]
                        + [str(memory) if shares else "", str(outs[rank])],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
                for rank in range(world)
            ]
            for worker in workers:
                stack.callback(worker.kill)
            ports = [worker.stdout.readline().strip() for worker in workers if worker.stdout]
            for worker in workers:
                assert worker.stdin
                worker.stdin.write(" ".join(ports) + "\n")
                worker.stdin.flush()
            assert [worker.wait(60) for worker in workers] == [0] * world
        found += [out.read_bytes() for out in outs]
    assert len(set(found)) == 1 and len(found[0]) == 4 * 610_010
