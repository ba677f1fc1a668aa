"""Checkpoints in object storage, on real servers: whole or not there, retention, one job."""

from __future__ import annotations

import logging
import os
import time

import numpy as np
import pytest
from checkpoint_state import assert_whole, write

from object_servers import BUCKET
from tfrun.checkpoint import remote_directory
from tfrun.checkpoint.background_copies import BackgroundCopies
from tfrun.checkpoint.background_writer import BackgroundWriter
from tfrun.checkpoint.remote_claims import RemoteClaim
from tfrun.checkpoint.remote_directory import RemoteDirectory
from tfrun.checkpoint.remote_store import LOCK, RemoteStore
from tfrun.job.errors import TfrunError, UsageError
from tfrun.job.timeouts import Timeouts
from tfrun.storage import long_waits
from tfrun.storage.lease import Lease
from tfrun.storage.objects import Objects


def steps(store: RemoteStore) -> list[int]:
    return [found.step for _, found in store.list()]


def test_what_is_written_is_read_and_the_oldest_go(objects):
    store = RemoteStore(objects, keep=2)
    assert store.newest() is None
    for step in (5, 10, 15):
        write(store, step)
    assert steps(store) == [10, 15]
    stored = RemoteStore(objects, read_only=True).newest()
    assert assert_whole(stored) == 15
    assert stored is not None and stored.where == f"{objects.url}/ckpt-15"
    assert {name.partition("/")[0] for name in objects.list()} == {"ckpt-10", "ckpt-15"}
    assert store.meta_of(10)["key"] == [0, 1, 10] and store.meta_of(11) == {}
    write(store, 8)  # a job that went back
    assert steps(store) == [15, 8] and assert_whole(store.newest()) == 8


def test_one_of_the_same_step_is_replaced_and_never_half(objects):
    store = RemoteStore(objects, keep=1)
    write(store, 5)
    write(store, 5)
    assert steps(store) == [5] and store.names() == ["ckpt-5-1"]
    assert assert_whole(store.newest()) == 5
    write(store, 5)
    assert assert_whole(store.newest()) == 5 and len(store.names()) == 1


def test_what_has_no_manifest_is_not_there(objects):
    store = RemoteStore(objects)
    write(store, 5)
    write(store, 10)
    objects.remove(["ckpt-10/manifest.json"])  # as if its writer had died before
    assert steps(store) == [5] and assert_whole(store.newest()) == 5
    write(store, 15)
    assert {name.partition("/")[0] for name in objects.list()} == {"ckpt-5", "ckpt-15"}


@pytest.mark.parametrize("damage", ["a flipped bit", "a missing file", "a damaged manifest"])
def test_a_damaged_one_is_passed_over(objects, caplog, damage):
    store = RemoteStore(objects, keep=1)
    write(store, 5)
    store = RemoteStore(objects, keep=2)
    write(store, 10)
    name = "ckpt-10/extra.safetensors"
    if damage == "a missing file":
        objects.remove([name])
    else:
        name = "ckpt-10/manifest.json" if "manifest" in damage else name
        data = bytearray(objects.read(name))
        data[-20] ^= 1
        objects.write(name, bytes(data))
    with caplog.at_level(logging.WARNING, "tfrun"):
        reader = RemoteStore(objects)
        assert assert_whole(reader.newest()) == 5
    assert "damaged checkpoint" in caplog.text and "ckpt-10" in caplog.text
    reader = RemoteStore(objects, keep=1)
    reader.newest()
    write(reader, 15)  # what is good goes for what is good, and the damaged one does not count
    assert assert_whole(RemoteStore(objects).newest()) == 15


@pytest.mark.parametrize(
    ("kind", "file"),
    [("deny", "extra.safetensors"), ("cut", "state.json"), ("throttle", "manifest.json")],
)
def test_an_upload_that_breaks_off(faults, file, kind):
    objects = Objects(f"s3://{BUCKET}/{file}-{kind}", patience=0.5)
    store = RemoteStore(objects)
    write(store, 5)
    faults.answers = lambda method, path: kind if method == "PUT" and file in path else ""
    with pytest.raises(TfrunError, match="TFRUN-704"):
        write(store, 10)
    faults.answers = lambda method, path: ""
    assert assert_whole(RemoteStore(objects).newest()) == 5
    write(store, 10)
    assert assert_whole(RemoteStore(objects).newest()) == 10
    assert {name.partition("/")[0] for name in objects.list()} == {"ckpt-5", "ckpt-10"}


def test_what_is_removed_is_gone_with_its_manifest(faults):
    objects = Objects(f"s3://{BUCKET}/gone", patience=0.5)
    store = RemoteStore(objects, keep=1)
    write(store, 5)

    def only_the_manifest(method: str, path: str) -> str:
        return "deny" if method == "DELETE" and "manifest" not in path else ""

    faults.answers = only_the_manifest
    write(store, 10)  # a warning says that the old one cannot be removed
    faults.answers = lambda method, path: ""
    assert steps(RemoteStore(objects)) == [10]
    write(store, 15)
    assert {name.partition("/")[0] for name in objects.list()} == {"ckpt-15"}


def test_training_goes_on_when_the_storage_does_not(faults):
    said: list[str] = []
    objects = Objects(f"s3://{BUCKET}/goes-on", patience=0.2)
    writer = BackgroundWriter(RemoteStore(objects), said.append)
    arrays = {"a": np.zeros(3)}
    faults.answers = lambda method, path: "cut"
    writer.submit(1, {}, arrays)
    assert not writer.flush(30)
    faults.answers = lambda method, path: ""
    writer.submit(2, {}, arrays)
    assert writer.flush(30)
    assert len(said) == 2 and "No checkpoint is being saved" in said[0]
    assert "TFRUN-704" in said[0] and "Training goes on" in said[0]
    assert said[1] == "Checkpoints are saved again: step 2."
    writer.close()


def test_who_has_lost_the_place_writes_nothing(objects):
    mine = Lease(objects, LOCK)
    assert mine.acquire()
    store = RemoteStore(objects, token=mine.token)
    write(store, 5)
    objects.write(LOCK, b'{"token": "another"}')
    before = objects.list()
    with pytest.raises(TfrunError, match=r"TFRUN-701.*another process writes checkpoints there"):
        write(store, 10)
    assert objects.list() == before
    mine.release()
    assert objects.read(LOCK) == b'{"token": "another"}'


def test_one_job_holds_a_place(objects):
    directory = RemoteDirectory(objects.url)
    said: list[str] = []
    with (
        directory.held("one", said.append, Timeouts()),
        pytest.raises(UsageError, match=r"TFRUN-110.*in use by process \d+ on"),
        directory.held("two", said.append, Timeouts()),
    ):
        pass
    with directory.held("two", said.append, Timeouts()):
        pass
    assert not said and objects.list() == {}


def test_an_agent_of_a_job_before_is_waited_for(objects):
    claim = RemoteClaim(objects.url, "n1")
    assert claim.acquire() and claim.holds
    said: list[str] = []

    def told(text: str) -> None:
        said.append(text)
        claim.release()

    with RemoteDirectory(objects.url).held("one", told, Timeouts()):
        assert len(said) == 1 and f"the agent n1, process {os.getpid()}" in said[0]
    assert not claim.holds


def test_what_a_finished_job_has_left_is_put_aside(objects, tmp_path):
    directory = RemoteDirectory(objects.url)
    assert not directory.has_checkpoints() and directory.newest_step() is None
    write(directory.store(), 5)
    (tmp_path / "call-0.safetensors").write_bytes(b"x")
    directory.keep_call(tmp_path / "call-0.safetensors")
    objects.write("of-somebody-else", b"")
    directory.begin(fresh=False, now=0.0)
    assert directory.has_checkpoints() and directory.newest_step() == 5
    assert list(directory.calls()) == ["call-0.safetensors"] and directory.has_call(
        "call-0.safetensors"
    )
    assert directory.fetch_call("call-0.safetensors", tmp_path / "again")
    assert not directory.fetch_call("call-1.safetensors", tmp_path / "none")
    directory.mark_finished()
    directory.begin(fresh=False, now=0.0)
    assert list(objects.list()) == ["of-somebody-else"]
    aside = time.strftime("%Y%m%d-%H%M%S", time.localtime(0.0))
    moved = Objects(f"{objects.url}-{aside}")
    assert assert_whole(RemoteStore(moved).newest()) == 5


def test_a_place_is_checked(objects):
    RemoteDirectory(objects.url).check(print)
    assert objects.list() == {}


@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE"])
def test_each_right_is_checked(faults, method):
    faults.answers = lambda asked, path: "deny" if asked == method else ""
    with pytest.raises(UsageError, match=r"TFRUN-704.*access is denied.*--checkpoint-dir"):
        RemoteDirectory(f"s3://{BUCKET}/rights").check(print)


@pytest.mark.parametrize(
    ("where", "variable"),
    [(f"s3://{BUCKET}/x", "AWS_ENDPOINT_URL"), (f"gs://{BUCKET}/x", "STORAGE_EMULATOR_HOST")],
)
def test_a_storage_that_is_not_there_is_waited_for_no_longer_than_it_is_said(
    where, variable, servers, monkeypatch
):
    """gcsfs tried for half a minute by itself, and nobody was told."""
    monkeypatch.setattr(remote_directory, "CHECK_SECONDS", 2.0)
    monkeypatch.setattr(long_waits, "SAY_SECONDS", 0.1)
    for name, value in servers[where[:2]].environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    said: list[str] = []
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"TFRUN-704.*does not answer.*(onnect)"):
        RemoteDirectory(where).check(said.append)
    assert time.monotonic() - began < 15
    assert said == [f"waiting up to 2 s for {where}, which does not answer"]


def test_files_are_copied_in_the_background(tmp_path):
    failing, copied, said = [True], [], []

    def copy(path):
        if failing[0]:
            raise OSError("no")
        copied.append(path)

    copies = BackgroundCopies(copy, lambda path, why: said.append(why))
    file = tmp_path / "a"
    file.touch()
    copies.submit(file)
    assert copies.flush(10) == "OSError: no" and said == ["OSError: no"]
    failing[0] = False
    assert copies.again(10) == "" and copied == [file]
