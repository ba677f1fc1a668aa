"""TFRecord files: the index, damage, and what is left out."""

from __future__ import annotations

import io
import itertools
import os

import numpy as np
import pytest
import tensorflow as tf

from tfrun.data.dataset import Dataset
from tfrun.data.order.shards import Replicas
from tfrun.data.pipeline import batches
from tfrun.data.sources import compressed, records
from tfrun.data.sources.record_index import index_files
from tfrun.data.sources.records import RecordSource, first_damaged
from tfrun.job.errors import TfrunError, UsageError

TEXTS = [b"%d " % i * (i % 7) for i in range(50)]  # some are empty


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(file)) as writer:
        for text in TEXTS:
            writer.write(text)
    return file


def damage(path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def read(path, **options) -> list[bytes]:
    data = Dataset.from_tfrecords(str(path), batch_size=8, **options)
    return [text for batch in data.tf_data() for text in batch.numpy().tolist()]


def test_the_index_is_where_tensorflow_finds_the_records(path):
    starts = index_files([str(path)])[0]
    assert np.diff(starts).tolist() == [len(text) + 16 for text in TEXTS]
    assert read(path) == list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()) == TEXTS


def test_the_index_is_kept_and_made_anew_when_the_file_changes(path):
    index_files([str(path)])[0]
    kept = path.with_name(f".{path.name}.tfrun-index")
    content = kept.read_bytes()
    os.utime(kept, ns=(1, 1))
    index_files([str(path)])[0]
    assert kept.stat().st_mtime_ns == 1, "it was written again"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(b"new")
    assert index_files([str(path)])[0].tolist() == [0, 19]
    kept.write_bytes(content[:50])  # a torn index is none
    assert index_files([str(path)])[0].tolist() == [0, 19]


def test_a_pattern_does_not_find_what_is_kept_beside_the_files(path):
    """The second run of a script, and the second worker, found the index of the first as a file."""
    pattern = path.with_name("a*")
    assert read(pattern) == read(pattern) == TEXTS
    with tf.io.TFRecordWriter(str(path.with_name("z")), "GZIP") as writer:
        for text in TEXTS:
            writer.write(text)
    pattern = path.with_name("z*")
    assert read(pattern, compression="GZIP") == read(pattern, compression="GZIP") == TEXTS
    assert len(records.matching(str(path.with_name("*")))) == 2
    assert len(list(path.parent.iterdir())) == 4
    assert tf.io.gfile.glob(str(path.with_name("a*"))) == [str(path)], "nor does another program"


def test_the_index_goes_to_the_run_directory_where_it_cannot_stand_beside_the_file(
    path, tmp_path, work_under
):
    (tmp_path / "run").mkdir()
    work_under(run_dir=str(tmp_path / "run"))
    path.with_name(f".{path.name}.tfrun-index").mkdir()  # root could write into any directory
    expected = index_files([str(path)])[0]
    (kept,) = (tmp_path / "run" / "index").iterdir()
    os.utime(kept, ns=(1, 1))
    assert np.array_equal(index_files([str(path)])[0], expected)
    assert kept.stat().st_mtime_ns == 1, "it was written again"


def test_a_record_with_a_wrong_checksum_is_named_or_skipped(path):
    starts = index_files([str(path)])[0]
    damage(path, int(starts[9]) + 12)
    with pytest.raises(TfrunError, match=f"TFRUN-605: the record at byte {starts[9]} .*checksum"):
        read_and_raise(path)
    data = Dataset.from_tfrecords(str(path), batch_size=8, on_error="skip")
    texts = [text for batch in data.tf_data() for text in batch.numpy().tolist()]
    assert texts == TEXTS[:9] + TEXTS[10:]
    assert data.skipped == 1


def read_and_raise(path) -> None:
    for _ in Dataset.from_tfrecords(str(path), batch_size=8):
        pass


def test_a_checksum_is_checked_also_when_the_record_is_read_alone(path):
    source = RecordSource([str(path)])
    assert source.read(np.array([3]))[0].tolist() == [TEXTS[3]]
    damage(path, int(index_files([str(path)])[0][4]) + 13)
    with pytest.raises(TfrunError, match="TFRUN-605"):
        source.read(np.array([4]))


def test_a_file_that_is_cut_off_is_refused(path):
    starts = index_files([str(path)])[0]
    os.truncate(path, int(starts[-1]) - 3)
    with pytest.raises(TfrunError, match=f"TFRUN-605: the record at byte {starts[-2]} "):
        read(path)
    os.truncate(path, int(starts[-2]) + 5)
    with pytest.raises(TfrunError, match=r"TFRUN-605.*ends within") as refused:
        read(path)
    assert "skip" not in str(refused.value)  # it would not help


def test_what_cannot_be_read_is_said_before_anything_is_trained(tmp_path):
    for kind in (None, "GZIP"):
        with pytest.raises(TfrunError, match="TFRUN-604: the file cannot be read: ") as refused:
            Dataset.from_tfrecords(str(tmp_path), batch_size=8, compression=kind)
        assert "skip" not in str(refused.value)


@pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
def test_a_compressed_file_is_refused(tmp_path, kind):
    path = str(tmp_path / "z.tfrecord")
    with tf.io.TFRecordWriter(path, kind) as writer:
        writer.write(b"text" * 100)
    with pytest.raises(UsageError, match="TFRUN-606"):
        Dataset.from_tfrecords(path, batch_size=1)


@pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
def test_a_compressed_file_is_read_in_sequence_when_asked(tmp_path, kind):
    path = str(tmp_path / "z.tfrecord")
    with tf.io.TFRecordWriter(path, kind) as writer:
        for text in TEXTS:
            writer.write(text)
    data = Dataset.from_tfrecords(path, tf.strings.length, batch_size=8, compression=kind)
    assert data.samples == len(TEXTS)
    seen = [[text for batch in data.tf_data(r, 2) for text in batch.numpy()] for r in (0, 1)]
    assert sorted(seen[0] + seen[1]) == sorted(len(text) for text in TEXTS)
    for options in ({"shuffle": True}, {"on_error": "skip"}, {"compression": "BZIP"}):
        with pytest.raises(UsageError, match="TFRUN-607"):
            Dataset.from_tfrecords(path, batch_size=1, **{"compression": kind, **options})


@pytest.fixture
def zipped(tmp_path):
    """Five files of 3 to 40 records, and the numbers that are in each."""
    numbers, files = 0, []
    for name, count in zip("abcde", (40, 3, 20, 30, 7), strict=True):
        with tf.io.TFRecordWriter(str(tmp_path / name), "GZIP") as writer:
            for number in range(numbers, numbers + count):
                writer.write(b"%d" % number)
        files.append(list(range(numbers, numbers + count)))
        numbers += count
    return tmp_path, files


def number_and_seed(record, seed):
    return tf.strings.to_number(record, tf.int64), seed


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("batch", [1, 8, 64])
def test_each_worker_reads_compressed_files_of_its_own(zipped, workers, batch):
    folder, files = zipped
    data = Dataset.from_tfrecords(
        [str(folder / name) for name in "abcde"],
        number_and_seed,
        batch_size=batch,
        compression="GZIP",
        shard="FILE",
    )
    parts = [list(data.tf_data(r, workers, epoch=1)) for r in range(workers)]
    assert {len(part) for part in parts} == {len(data)} == {-(-100 // batch)}
    seeds = {}
    for rank, part in enumerate(parts):
        numbers = [n for rows, _ in part for n in rows.numpy().tolist()]
        assert numbers == [n for file in files[rank::workers] for n in file]
        for rows, keys in part:
            seeds |= dict(zip(rows.numpy().tolist(), keys.numpy().tolist(), strict=True))
    assert [seeds[n] for n in range(100)] == [[seeds[0][0], n] for n in range(100)]
    for step in range(len(data)):
        size = sum(len(part[step][0]) for part in parts)
        assert abs(size - 100 / len(data)) < workers, "the samples are spread over the steps"
    place = len(data) // 2
    later = list(data.tf_data(0, workers, epoch=1, start_step=place))
    assert [b.numpy().tolist() for b, _ in later] == [
        b.numpy().tolist() for b, _ in parts[0][place:]
    ]


def test_the_replicas_of_a_worker_share_its_files(zipped):
    folder, _ = zipped
    data = Dataset.from_tfrecords(f"{folder}/?", batch_size=8, compression="GZIP", shard="FILE")
    both = [
        b.numpy().tolist() for b in batches(data.plan, Replicas(first=2, count=2, total=4), 0, 26)
    ]
    for replica in (2, 3):
        alone = batches(data.plan, Replicas(first=replica, total=4), 0, 26)
        assert both[replica - 2 :: 2] == [b.numpy().tolist() for b in alone]


def test_what_file_sharding_cannot_do_is_refused(zipped):
    folder, _ = zipped
    options = {"batch_size": 8, "compression": "GZIP", "shard": "FILE"}
    data = Dataset.from_tfrecords(f"{folder}/?", **options)
    with pytest.raises(UsageError, match=r"TFRUN-612.*5 files for 6 replicas"):
        data.tf_data(0, 6)
    with pytest.raises(UsageError, match="TFRUN-607"):
        data.sample_ids(0, 0)
    for changes in ({"compression": ""}, {"shard": "file"}):
        with pytest.raises(UsageError, match="TFRUN-607"):
            Dataset.from_tfrecords(f"{folder}/?", **options | changes)


def test_compressed_files_are_counted_once_and_their_damage_is_named(zipped):
    folder, _ = zipped
    options = {"batch_size": 8, "compression": "GZIP"}
    assert Dataset.from_tfrecords(f"{folder}/?", **options).samples == 100
    kept = folder / ".a.tfrun-count"
    content = io.BytesIO()
    np.save(content, np.array([*np.load(io.BytesIO(kept.read_bytes()))[:2], 50]))
    kept.write_bytes(content.getvalue())
    assert Dataset.from_tfrecords(f"{folder}/?", **options).samples == 110
    kept.unlink()
    whole = (folder / "d").read_bytes()
    for damaged in (whole[:40], whole[:-9], whole[:60] + b"?" + whole[61:], b"", b"plain" * 9):
        (folder / "d").write_bytes(damaged)
        with pytest.raises(TfrunError, match=r"TFRUN-605: record \d+ is corrupt"):
            Dataset.from_tfrecords(f"{folder}/?", **options)
    (folder / "d").write_bytes(whole + whole)  # two streams are one file
    again = Dataset.from_tfrecords(f"{folder}/?", **options)
    assert again.samples == 130 == sum(len(batch) for batch in again.tf_data())


@pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
def test_compressed_files_are_counted_through(tmp_path, monkeypatch, kind):
    """In pieces of any size, records with and without content."""
    path = str(tmp_path / "z")
    with tf.io.TFRecordWriter(path, kind) as writer:
        for text in TEXTS:
            writer.write(text * 50)
    for chunk in (1, 5, 1 << 20):
        monkeypatch.setattr(compressed, "_CHUNK", chunk)
        (tmp_path / ".z.tfrun-count").unlink(missing_ok=True)
        assert compressed.count_records([path], kind).tolist() == [len(TEXTS)]


def test_files_without_records_are_refused(tmp_path):
    (tmp_path / "empty.tfrecord").touch()
    with pytest.raises(UsageError, match="TFRUN-601"):
        Dataset.from_tfrecords(str(tmp_path / "*"), batch_size=1)


def test_a_file_that_vanishes_is_named_or_its_samples_are_skipped(tmp_path):
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(str(number))
    options = {"batch_size": 3, "load": lambda path, content: content}
    strict = Dataset.from_files(str(tmp_path / "*.txt"), **options)
    lenient = Dataset.from_files(str(tmp_path / "*.txt"), on_error="skip", **options)
    (tmp_path / "4.txt").unlink()
    with pytest.raises(TfrunError, match=r"TFRUN-604.*4\.txt"):
        list(strict)
    assert [batch.numpy().tolist() for batch in lenient] == [[b"0", b"1", b"2"], [b"3", b"5"]]
    assert lenient.skipped == 1


def test_a_record_file_that_becomes_shorter_is_no_crash(path):
    source = RecordSource([str(path)])
    os.truncate(path, 100)
    with pytest.raises(TfrunError, match=r"TFRUN-604.*shorter"):
        source.read(np.array([49]))


def test_a_record_file_that_becomes_shorter_under_its_map_is_no_crash(path):
    source = RecordSource([str(path)])
    assert source.read(np.array([3]))[0].tolist() == [TEXTS[3]]
    os.truncate(path, 0)
    with pytest.raises(TfrunError, match=r"TFRUN-604.*shorter"):
        source.read(np.array([49]))


@pytest.mark.parametrize("offset", [0, 7, 8, 11, 12, -5, -4, -1])
def test_every_bit_of_a_record_is_checked_as_tensorflow_does(path, offset):
    starts = index_files([str(path)])[0]
    place = int(starts[6] + offset if offset >= 0 else starts[7] + offset)
    (content, sizes), texts = (path.read_bytes(), np.diff(starts)), TEXTS
    assert first_damaged(content, sizes, texts) is None
    for bit in range(8):
        torn = bytearray(content)
        torn[place] ^= 1 << bit
        data = [bytes(torn[a + 12 : b - 4]) for a, b in itertools.pairwise(starts)]
        assert first_damaged(bytes(torn), sizes, data) == 6
        path.write_bytes(torn)
        with pytest.raises(tf.errors.DataLossError):
            list(tf.data.TFRecordDataset(str(path)))


@pytest.mark.parametrize("large", [10, 1 << 20])
def test_records_of_any_size_come_in_any_order(tmp_path, monkeypatch, large):
    """Read by memory map or piece by piece, a few and more than one call to the system takes."""
    monkeypatch.setattr(records, "_LARGE", large)
    rng = np.random.default_rng(0)
    texts = [rng.bytes(size) for size in rng.integers(0, 9000, 3000)]
    files = [tmp_path / "a", tmp_path / "b"]
    for file, part in zip(files, (texts[:1000], texts[1000:]), strict=True):
        with tf.io.TFRecordWriter(str(file)) as writer:
            for text in part:
                writer.write(text)
    source = RecordSource([str(file) for file in files])
    order = rng.permutation(3000)
    for chosen in (order[:5], order, order[:700], np.empty(0, np.int64), order):
        assert source.read(chosen)[0].tolist() == [texts[i] for i in chosen]
