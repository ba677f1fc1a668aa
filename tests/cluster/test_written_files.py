"""Files that all workers of a script write: each is one worker's whole file, also under SIGKILL."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from workers import SCRIPTS, TFRUN, shown_by

SCRIPT = SCRIPTS / "writes_files.py"
# By the functions of the script.
PYTHONS = (
    *("text_file", "one_write", "as_json", "as_csv", "as_pickle", "zipped", "tarred", "gzipped"),
    *("copied", "by_a_child", "log", "left_open", "exclusive", "per_rank", "locked", "folders"),
    *("swapped", "log_of_epochs", "temporary"),
)
LIBRARIES = (
    *("as_npy", "as_npz", "as_txt", "mapped", "picture", "figure", "keras_picture", "downloaded"),
    *("records", "gfile", "hdf5", "written_at_once", "as_bytes"),
    *("mapped_late", "mapped_npy", "mapped_left"),
)
NOTICE = re.compile(
    r"worker \d: (\S+) is written by several of the (\d) workers, and each writes a whole"
)


def shown(folder: Path, n: int, kinds: tuple[str, ...], *options: str) -> str:
    (folder / "out").mkdir()
    command = [TFRUN, "-n", str(n), "--log-all", "--run-dir", folder / "run", *options]
    return shown_by([*command, SCRIPT, folder / "out", ",".join(kinds)], {}, timeout=150)


@pytest.mark.timeout(170)
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("kinds", [PYTHONS, LIBRARIES], ids=["python", "libraries"])
def test_each_file_is_one_workers_whole_file(kinds, n, tmp_path: Path) -> None:
    text = shown(tmp_path, n, kinds, "--strict")
    for kind in kinds:
        for rank in range(n):
            assert f"{kind}: rank {rank}: ok" in text, text
    said = NOTICE.findall(text)
    assert len(said) == 1 and said[0][1] == str(n), text
    out = tmp_path / "out"
    assert not list(out.glob(".*")), "something hidden is left"
    if "text_file" in kinds:
        for turn in range(3):
            lines = (out / f"text_file{turn}.out").read_text().splitlines()
            assert lines[0] == "0 0" and len(lines) == 20_000, "the chief's does not stand"
            assert json.loads((out / f"as_json{turn}.out").read_text())[0] == "0 0"
            assert (out / f"log{turn}.out").read_text().startswith("0 0\n0 1\n")
            assert len((out / f"left_open{turn}.out").read_text().splitlines()) == 20_000
            epochs = (out / f"log_of_epochs{turn}.out").read_text().split()
            assert epochs == ["epoch", *"01234"]
            assert (out / f"locked{turn}.count").readlink() == Path(str(5 * n))
    else:
        for turn in range(3):
            assert h5py.is_hdf5(out / f"hdf5{turn}.left")
            for name in (f"mapped_late{turn}.out", f"mapped_left{turn}.out"):
                assert (out / name).read_bytes() == bytes(800_000), "the chief's does not stand"
            assert not np.load(out / f"mapped_npy{turn}.npy").any()


def test_lines_that_all_append_are_whole_and_it_is_said_once(tmp_path: Path) -> None:
    text = shown(tmp_path, 2, ("appended",))
    assert text.count("WARNING TFRUN-516: several of the 2 workers append to ") == 2, text
    for turn in range(3):
        lines = (tmp_path / "out" / f"appended{turn}.out").read_text().splitlines()
        assert sorted(lines) == [f"{rank} {'x' * 97}" for rank in (0, 1) for _ in range(2000)]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_that_is_killed_leaves_no_half(victim: int, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    command = [TFRUN, "-n", "3", "--log-all", "--run-dir", tmp_path / "run"]
    script = [SCRIPTS / "writes_and_dies.py", out, str(victim)]
    text = shown_by([*command, *script], {}, timeout=90)
    whose = r"0" if victim else "[12]"
    for name in ("text", "binary"):
        assert re.search(f"{name}: whole, of worker {whose}\n", text), text
        assert (out / name).read_text() == "0\n" * 100_000
    assert sorted(p.name for p in out.iterdir() if p.suffix != ".here") == ["binary", "text"]


def test_a_single_worker_has_pythons_own_open(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print(open)\n")
    command = [TFRUN, "-n", "1", "--log-all", "--run-dir", tmp_path / "run", script]
    assert "<built-in function open>" in shown_by(command, {}, timeout=60)
