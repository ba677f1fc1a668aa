"""Nothing half-written is ever seen: killed writers, full and read-only disks, two writers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_state import assert_whole, write

from tfrun.checkpoint import writable_directory
from tfrun.checkpoint.atomic_store import Store
from tfrun.job.errors import TfrunError, UsageError

HERE = Path(__file__).parent
# Writes checkpoints until it is killed; says so when the first one is there.
WRITER = """
import itertools, sys
from checkpoint_state import write
from tfrun.checkpoint.atomic_store import Store
store = Store(sys.argv[1], keep=2)
for n in itertools.count():
    write(store, n % 7, size=50_000)
    print(n, flush=True)
"""
# Children that each die before another one of the calls that a write makes to the system: audit
# events come before the call. The last one lives.
DIES_EVERYWHERE = """
import itertools, os, signal, sys
from pathlib import Path
from checkpoint_state import assert_whole, write
from tfrun.checkpoint import manifest
from tfrun.checkpoint.atomic_store import Store

def child(directory, step, calls):
    store, left = Store(directory, keep=2), [calls]
    def count(event, arguments):
        if event == "open" or (event != "os.kill" and event.startswith(("os.", "fcntl."))):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    write(store, step)
    os._exit(0)

def names(directory):
    return sorted(name for name in os.listdir(directory) if name != ".lock")

step = int(sys.argv[2])  # 2 is there already, 3 is new
for calls in itertools.count():
    directory = f"{sys.argv[1]}/{calls}"
    store = Store(directory, keep=2)
    for n in (1, 2):
        write(store, n)
    store.close()
    pid = os.fork()
    if pid == 0:
        child(directory, step, calls)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), code
    for path in Path(directory).glob("ckpt-*"):  # what can be seen is whole
        manifest.verify(path, manifest.read(path))
    found = assert_whole(Store(directory, read_only=True).newest())
    # Between the two renames that replace a checkpoint there is the one before it alone.
    assert found in ((2, 3) if step == 3 else (1, 2)), found
    store = Store(directory, keep=2)
    assert assert_whole(store.newest()) in (2, 3)
    assert set(names(directory)) <= {"ckpt-1", "ckpt-2", "ckpt-3"}, names(directory)
    write(store, 9)
    assert len(names(directory)) == 2, names(directory)
    if code == 0:
        break
print(calls)
"""


def names(path: Path) -> set[str]:
    return {p.name for p in path.iterdir()}


def python(code: str, *args: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("step", [3, 2], ids=["a_new_step", "the_same_step"])
def test_killed_before_any_call(tmp_path, step):
    with python(DIES_EVERYWHERE, tmp_path, step) as job:
        try:
            out, _ = job.communicate(timeout=60)
        finally:
            job.kill()
    assert job.returncode == 0
    assert int(out) >= 20  # so many calls does a write make


def test_killed_at_random_moments(tmp_path):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(8):
        with python(WRITER, tmp_path) as job:
            assert job.stdout is not None
            written = rng.randrange(1, 12)
            for _ in range(written):
                assert job.stdout.readline().strip().isdigit()
            try:
                job.wait(rng.random() * 0.02)
            except subprocess.TimeoutExpired:
                pass
            job.send_signal(signal.SIGKILL)
        assert_whole(Store(tmp_path, read_only=True).newest(), size=50_000)
        store = Store(tmp_path)
        found = names(tmp_path)
        assert not [name for name in found if name.startswith(".") and name != ".lock"], seed
        assert_whole(store.newest(), size=50_000)
        store.close()


def test_a_full_disk(small_disk):
    store = Store(small_disk / "c", keep=2)
    write(store, 1)
    free = os.statvfs(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(free.f_bavail * free.f_bsize - 20_000))
    before = names(small_disk / "c")
    for step in (1, 2):  # also the one that is there is not harmed
        with pytest.raises(TfrunError, match=r"TFRUN-701.*No space left on device.*Make room"):
            write(store, step)
        assert names(small_disk / "c") == before
        assert assert_whole(store.newest()) == 1
    ballast.unlink()
    write(store, 2)
    assert assert_whole(store.newest()) == 2


def test_every_amount_of_space(small_disk):
    """The disk is full at another place of the write each time."""
    store = Store(small_disk / "c", keep=1)
    ballast = small_disk / "ballast"
    failures, newest = 0, None
    for step, free in enumerate(range(0, 17)):
        total = os.statvfs(small_disk)
        ballast.write_bytes(bytes((total.f_bavail - free) * total.f_bsize))
        try:
            write(store, step)
        except TfrunError:
            failures += 1
        else:
            newest = step
        ballast.unlink()
        found = store.newest()
        assert (None if found is None else assert_whole(found)) == newest
        hidden = {name for name in names(small_disk / "c") if name.startswith(".")}
        assert hidden <= {".lock"}
    assert failures > 5
    assert newest is not None


def test_a_disk_that_becomes_read_only(small_disk):
    store = Store(small_disk)
    write(store, 1)
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    store = Store(small_disk)
    for _ in range(2):
        with pytest.raises(TfrunError, match=r"TFRUN-701.*Read-only file system.*for writing"):
            write(store, 2)
    assert assert_whole(store.newest()) == 1
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    write(store, 2)
    assert assert_whole(store.newest()) == 2


def test_a_directory_is_tried_before_anything_is_trained(small_disk):
    writable_directory.check(small_disk / "c/d", print)
    assert not names(small_disk)
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_bsize))
    with pytest.raises(UsageError, match=r"TFRUN-701.*No space left on device.*Make room"):
        writable_directory.check(small_disk / "c", print)
    (small_disk / "ballast").unlink()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(UsageError, match=r"TFRUN-701.*Read-only file system.*--checkpoint-dir"):
        writable_directory.check_or_tell(small_disk / "c", print)


def test_a_file_in_the_place_of_the_directory(tmp_path):
    (tmp_path / "c").write_text("")
    store = Store(tmp_path / "c")
    assert store.newest() is None
    with pytest.raises(TfrunError, match="TFRUN-701"):
        write(store, 1)
    (tmp_path / "c").unlink()
    write(store, 1)
    assert assert_whole(store.newest()) == 1


def test_there_is_one_writer(tmp_path):
    first = Store(tmp_path)
    write(first, 1)
    (tmp_path / ".new-ckpt-2-00000000").mkdir()  # what the first one is writing
    second = Store(tmp_path)
    with pytest.raises(TfrunError, match=r"TFRUN-701.*another process writes"):
        write(second, 2)
    assert assert_whole(second.newest()) == 1
    assert ".new-ckpt-2-00000000" in names(tmp_path)
    first.close()
    write(second, 2)
    assert names(tmp_path) == {".lock", "ckpt-1", "ckpt-2"}
    with pytest.raises(TfrunError, match="another process writes"):
        write(first, 3)


def test_a_reader_does_not_take_the_place_of_the_writer(tmp_path):
    reader = Store(tmp_path, read_only=True)
    writer = Store(tmp_path)
    write(writer, 1)
    assert assert_whole(reader.newest()) == 1


def test_a_killed_writer_makes_room_for_another(tmp_path):
    with python(WRITER, tmp_path) as job:
        assert job.stdout is not None
        job.stdout.readline()
        store = Store(tmp_path)
        with pytest.raises(TfrunError, match="another process writes"):
            write(store, 100)
        job.send_signal(signal.SIGKILL)
    write(store, 100)
    assert assert_whole(store.newest()) == 100


def test_what_a_script_forks_does_not_keep_the_lock(tmp_path):
    code = (
        "import os, sys, time\n"
        "from tfrun.checkpoint.atomic_store import Store\n"
        "store = Store(sys.argv[1])\n"
        "pid = os.fork()\n"
        "if pid == 0: os.write(1, b'%d\\n' % os.getpid()); sys.stdin.read()\n"
        "os._exit(0)\n"
    )
    read, hold = os.pipe()
    job = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=read, stdout=subprocess.PIPE, text=True
    )
    os.close(read)
    assert job.stdout is not None
    orphan = int(job.stdout.readline())
    job.wait(10)
    os.kill(orphan, 0)  # it lives
    store = Store(tmp_path)
    write(store, 1)
    os.close(hold)  # which ends it
    assert job.stdout.read() == ""
    job.stdout.close()


def test_readers_while_it_is_written(tmp_path):
    with python(WRITER, tmp_path) as job:
        assert job.stdout is not None
        job.stdout.readline()
        reader = Store(tmp_path, read_only=True)
        for _ in range(50):
            assert_whole(reader.newest(), size=50_000)
        job.kill()
