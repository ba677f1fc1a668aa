"""TFRecord files in object storage: which are meant, and what errors call them."""

from __future__ import annotations

import pytest
import tensorflow as tf

import object_servers
from conftest import wait_until
from object_servers import BUCKET
from tfrun.data.dataset import Dataset
from tfrun.job.errors import TfrunError, UsageError
from tfrun.storage import long_waits
from tfrun.storage.objects import Objects

TEXTS = [b"%d" % i for i in range(8)]


@pytest.fixture(scope="module")
def place(servers, tmp_path_factory):
    """A folder with two files, what tfrun has kept beside one on a disk, and a damaged file."""
    path = tmp_path_factory.mktemp("records") / "a"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for text in TEXTS:
            writer.write(text)
    damaged = bytearray(path.read_bytes())
    damaged[12] ^= 1
    with object_servers.in_environment(servers["s3"]):
        objects = Objects(f"s3://{BUCKET}/records")
        for name in ("a-0", "a-1"):
            objects.put(name, path)
        objects.write("a-0.tfrun-index", b"x")
        objects.write("damaged", bytes(damaged))
        objects.write("cut", bytes(damaged[:-3]))
        yield objects


def read(files, **options) -> list[bytes]:
    data = Dataset.from_tfrecords(files, batch_size=8, **options)
    return [text for batch in data.tf_data() for text in batch.numpy().tolist()]


@pytest.mark.parametrize("pattern", ["a-*", "a-?", "a-[01]", "*-[01]"])
def test_a_pattern_finds_the_records_and_nothing_beside_them(place, pattern):
    assert read(place.at(pattern)) == TEXTS * 2


def test_a_folder_is_not_its_files(place):
    with pytest.raises(UsageError, match=rf"TFRUN-604.*that folder, write {place.url}/\*"):
        read(f"{place.url}/")


def test_damage_is_named_by_the_url_and_not_by_the_copy(place):
    with pytest.raises(TfrunError, match=rf"TFRUN-605.*\(in {place.at('cut')}\)"):
        read(place.at("cut"))
    with pytest.raises(tf.errors.UnknownError, match=rf"TFRUN-605.*\(in {place.at('damaged')}\)"):
        read(place.at("damaged"))


def test_a_long_copy_is_told_of(place, monkeypatch, capsys):
    monkeypatch.setattr(long_waits, "SAY_SECONDS", 0.0)
    fetch = Objects.fetch

    def slowly(self, name, target):
        fetch(self, name, target)
        wait_until(lambda: "copying" in said(), "it is told", 10)

    def said() -> str:
        found.append(capsys.readouterr().err)
        return "".join(found)

    found: list[str] = []
    monkeypatch.setattr(Objects, "fetch", slowly)
    place.write("long", place.read("a-0"))
    read(place.at("long"))
    assert f"tfrun: copying 1 file(s) (0.0 GB) of s3://{BUCKET} to " in said()


@pytest.mark.parametrize(
    ("files", "code"), [([], "TFRUN-601"), (None, "TFRUN-607"), ([5], "TFRUN-607")]
)
def test_what_names_no_files(files, code):
    for make in (Dataset.from_tfrecords, Dataset.from_files):
        with pytest.raises(UsageError, match=code):
            make(files, lambda *parts: parts, batch_size=8)
