# ruff: noqa: PTH103, PTH105, PTH107, PTH108, PTH115, PTH123, PTH211, SIM115
"""Writes the same files on all workers, by many ways, and reads them back at once.

What a worker reads must be one worker's whole file. `KINDS` are told apart in what they print:
"KIND: ok" or what was wrong; the test looks at what is left at the end.
"""

import csv
import fcntl
import gzip
import json
import logging
import mmap
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import time
import traceback
import zipfile
from pathlib import Path

import numpy as np

OUT, KINDS, TURNS = Path(sys.argv[1]), sys.argv[2].split(","), 3
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LINES = 20_000


def together(name):
    """Waits for all workers; by what is none of what is tested."""
    os.close(os.open(OUT / f"{name}.{RANK}.here", os.O_CREAT | os.O_WRONLY))
    until = time.monotonic() + 20
    while not all((OUT / f"{name}.{rank}.here").exists() for rank in range(SIZE)):
        assert time.monotonic() < until, f"{name}: the others do not come"
        time.sleep(0.001)


def lines(rank=RANK):
    return [f"{rank} {i}" for i in range(LINES + 1000 * rank)]


def check_lines(text):
    found = text.splitlines()
    assert found, "empty"
    rank = int(found[0].split()[0])
    assert found == lines(rank), f"torn: {len(found)} lines, {found[0]} to {found[-1]}"


def check_array(array):
    rank = int(array[0])
    assert len(array) == 100_000 + 1000 * rank and (array == rank).all(), f"torn: {array.shape}"


ARRAY = np.full(100_000 + 1000 * RANK, RANK)


def text_file(path):
    with open(path, "w") as file:
        for line in lines():
            file.write(line + "\n")
    check_lines(open(path).read())


def one_write(path):
    path.write_text("\n".join(lines()) + "\n")
    check_lines(path.read_text())


def as_json(path):
    with path.open("w", encoding="utf-8") as file:
        json.dump(lines(), file)
    check_lines("\n".join(json.loads(path.read_text())))


def as_csv(path):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([line] for line in lines())
    check_lines("\n".join(row[0] for row in csv.reader(open(path, newline=""))))


def as_pickle(path):
    pickle.dump(lines(), open(path, "wb"))
    check_lines("\n".join(pickle.load(open(path, "rb"))))


def as_npy(path):
    np.save(path.with_suffix(".npy"), ARRAY)
    check_array(np.load(path.with_suffix(".npy")))


def as_npz(path):
    np.savez(path.with_suffix(".npz"), a=ARRAY)
    check_array(np.load(path.with_suffix(".npz"))["a"])


def as_txt(path):
    np.savetxt(path, ARRAY[:20_000], "%d")
    found = np.loadtxt(path, dtype=int)
    assert len(found) == 20_000 and (found == found[0]).all(), "torn"


def mapped(path):
    array = np.memmap(path, dtype="int64", mode="w+", shape=ARRAY.shape)
    array[:] = ARRAY
    array.flush()
    del array
    check_array(np.fromfile(path, dtype="int64"))


def after_others(path):
    """Has the chief come last: it has begun the file, and another worker reads its own."""
    if RANK == 0:
        until = time.monotonic() + 20
        while not all(Path(f"{path}.{rank}.read").exists() for rank in range(1, SIZE)):
            assert time.monotonic() < until, f"{path}: the others do not read"
            time.sleep(0.001)


def mapped_late(path):
    array = np.memmap(path, dtype="int64", mode="w+", shape=ARRAY.shape)
    assert array.filename == path, array.filename
    assert np.memmap(str(path) + ".2", mode="w+", shape=(1,)).filename == str(path) + ".2"
    together(f"mapped {path.name}")
    after_others(path)
    array[:] = ARRAY
    check_array(np.fromfile(path, dtype="int64"))  # it is still mapped, and not flushed
    os.close(os.open(f"{path}.{RANK}.read", os.O_CREAT | os.O_WRONLY))


def mapped_npy(path):
    path = path.with_suffix(".npy")
    array = np.lib.format.open_memmap(path, "w+", dtype="int64", shape=ARRAY.shape)
    together(f"mapped {path.name}")
    after_others(path)
    array[:] = ARRAY
    array.flush()
    check_array(np.load(path))
    os.close(os.open(f"{path}.{RANK}.read", os.O_CREAT | os.O_WRONLY))
    check_array(np.load(path, mmap_mode="r+"))


def mapped_left(path):
    with open(path, "w+b") as file:
        file.truncate(ARRAY.nbytes)
        memory = mmap.mmap(file.fileno(), 0)
    memory[:] = ARRAY.tobytes()
    globals()[f"left_{path.name}"] = memory


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "\n".join(lines()))
    check_lines(zipfile.ZipFile(path).read("a").decode())


def tarred(path):
    inside = OUT / f"inside-{RANK}"
    inside.write_text("\n".join(lines()))
    with tarfile.open(path, "w") as archive:
        archive.add(inside, "a")
    with tarfile.open(path) as archive:
        check_lines(archive.extractfile("a").read().decode())


def gzipped(path):
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines()))
    with gzip.open(path, "rt") as file:
        check_lines(file.read())


def copied(path):
    source = OUT / f"copied-{RANK}"
    source.write_text("\n".join(lines()))
    shutil.copy(source, path)
    check_lines(path.read_text())


def by_a_child(path):
    with open(path, "wb") as file:
        subprocess.run(["cat"], input="\n".join(lines()).encode(), stdout=file, check=True)
    check_lines(path.read_text())


def picture(path):
    from PIL import Image

    pixels = np.random.default_rng(RANK).integers(0, 256, (256, 256, 3), dtype="uint8")
    for suffix in (".png", ".jpg"):
        Image.fromarray(pixels).save(path.with_suffix(suffix))
        Image.open(path.with_suffix(suffix)).load()  # which fails for a truncated one


def figure(path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.plot(range(RANK + 2))
    plt.savefig(path.with_suffix(".png"))
    plt.close()
    assert plt.imread(path.with_suffix(".png")).ndim == 3


def keras_picture(path):
    import keras

    pixels = np.random.default_rng(RANK).integers(0, 256, (256, 256, 3))
    keras.utils.save_img(path.with_suffix(".jpg"), pixels)
    keras.utils.load_img(path.with_suffix(".jpg"))


def downloaded(path):
    import keras

    source = OUT / f"source-{RANK}"
    source.write_text("\n".join(lines()))
    got = keras.utils.get_file(path.name, source.as_uri(), cache_dir=OUT, cache_subdir="cache")
    check_lines(Path(got).read_text())


def log(path):
    """Is flushed with each line, and read by others while it grows."""
    handler = logging.FileHandler(path, mode="w")
    for line in lines()[:50]:
        handler.emit(logging.LogRecord("x", 20, "", 0, line, None, None))
    if RANK == 0:
        assert path.read_text().splitlines() == lines()[:50], "the chief's log is not the chief's"
    handler.close()


def left_open(path):
    """Closed by nobody: the interpreter would write it at its end."""
    globals()[f"left_{path.name}"] = file = open(path, "w")
    file.write("\n".join(lines()))


def exclusive(path):
    with open(path, "x") as file:
        file.write("\n".join(lines()))
    check_lines(path.read_text())
    try:
        open(path, "x")
    except FileExistsError:
        return
    raise AssertionError("it was made twice")


def per_rank(path):
    mine = path.with_name(f"{path.name}-{RANK}")
    with open(mine, "w") as file:
        file.write("first\n")
        file.flush()
        assert mine.read_text() == "first\n"
    with open(mine, "a") as file:
        file.write("second\n")
    assert mine.read_text() == "first\nsecond\n"
    os.remove(mine)
    assert not mine.exists()


def locked(path):
    """A counter behind a lock file: nothing is lost where all lock the same inode."""
    for _ in range(5):
        with open(path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            count = path.with_suffix(".count")
            number = int(os.readlink(count)) if count.is_symlink() else 0
            if count.is_symlink():
                os.unlink(count)
            os.symlink(str(number + 1), count)


def folders(path):
    if path.exists():
        shutil.rmtree(path)
    os.makedirs(path / "a")
    (path / "b").mkdir()
    (path / "a" / "file").write_text("x")
    together(f"folders {path.name}")
    shutil.rmtree(path)
    assert not path.exists()
    together(f"removed {path.name}")
    os.makedirs(path)


def swapped(path):
    """Written under a name that all workers share, and moved to another one."""
    new = path.with_suffix(".new")
    with open(new, "w") as file:
        file.write("\n".join(lines()))
    os.replace(new, path)
    check_lines(path.read_text())
    together(f"swapped {path.name}")
    os.remove(path)


def temporary(path):
    """Written, read and removed, again and again, each worker at its own speed."""
    for turn in range(200):
        if path.exists():
            os.remove(path)
        with open(path, "w") as file:
            file.write("\n".join(lines()[:200]))
        if turn % 5 == RANK:
            time.sleep(0.002)
        assert len(path.read_text().splitlines()) == 200, "torn"
        os.remove(path)
    together(f"temporary {path.name}")
    assert not path.exists(), "the last one has not removed it"


def log_of_epochs(path):
    """A header, then a line for each epoch: as the chief alone would have written it."""
    with open(path, "w") as file:
        file.write("epoch\n")
    together(f"header {path.name}")
    for epoch in range(5):
        with open(path, "a") as file:
            file.write(f"{epoch}\n")


def appended(path):
    with open(path, "a") as file:
        for _ in range(2000):
            file.write(f"{RANK} {'x' * 97}\n")


def hdf5(path):
    import h5py

    with h5py.File(path, "w") as file:
        file["a"] = ARRAY
    for name in ("b", "c"):
        with h5py.File(path, "a") as file:
            file[name] = ARRAY
    together(f"hdf5 {path.name}")  # before that the chief may have closed an earlier one last
    with h5py.File(path) as file:
        assert sorted(file) == ["a", "b", "c"], list(file)
        for array in file.values():
            check_array(array[:])
    globals()[f"left_{path.name}"] = h5py.File(path.with_suffix(".left"), "x")


def written_at_once(path):
    import tensorflow as tf

    tf.io.write_file(str(path), ARRAY.tobytes())
    check_array(np.frombuffer(tf.io.read_file(str(path)).numpy(), ARRAY.dtype))


def as_bytes(path):
    ARRAY.tofile(path)
    check_array(np.fromfile(path, ARRAY.dtype))


def records(path):
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for line in lines()[:5000]:
            writer.write(line.encode())
    found = [record.numpy().decode() for record in tf.data.TFRecordDataset(str(path))]
    assert found in [lines(rank)[:5000] for rank in range(SIZE)], f"torn: {len(found)}"


def gfile(path):
    import tensorflow as tf

    with tf.io.gfile.GFile(str(path), "w") as file:
        for line in lines():
            file.write(line + "\n")
    with tf.io.gfile.GFile(str(path)) as file:
        check_lines(file.read())


for kind in KINDS:
    for turn in range(TURNS):
        together(f"{kind} {turn}")
        try:
            globals()[kind](OUT / f"{kind}{turn}.out")
        except Exception:
            print(f"{kind}: rank {RANK}: {traceback.format_exc(limit=-2)}", flush=True)
            break
    else:
        print(f"{kind}: rank {RANK}: ok", flush=True)
