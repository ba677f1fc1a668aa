"""The errors about data, with their codes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tfrun.job import reports
from tfrun.job.errors import TfrunError, UsageError
from tfrun.process import channel

_origins: dict[str, str] = {}  # by the paths of copies: where they are from


def copied(path: str, origin: str) -> None:
    """Has errors about a copy name what it was copied from, which a person can do something about.

    Args:
      path: of the copy.
      origin: a URL.
    """
    _origins[path] = origin


def empty(where: str, expected: str = "at least one sample") -> UsageError:
    return UsageError("TFRUN-601", "the data is empty", where=where, expected=expected)


def doubt_validation() -> None:
    """Reports that `fit` validates with nothing: its training is none the worse for it."""
    text = (
        "the validation data is empty, so callbacks get no val_ metrics; with "
        "drop_remainder=True, data smaller than one batch is dropped"
    )
    channel.emit(reports.DoubtRaised(code="TFRUN-601", text=text))


def different_lengths(lengths: dict[str, int], where: str) -> UsageError:
    stated = ", ".join(f"{name}: {length}" for name, length in lengths.items())
    return UsageError(
        "TFRUN-602",
        f"the arrays have different numbers of samples ({stated})",
        where=where,
        expected="the same first dimension everywhere",
    )


def batch_too_large(batch: int, samples: int, where: str) -> UsageError:
    held, sizes = (f"{samples} samples", f"1 to {samples}") if samples != 1 else ("1 sample", "1")
    return UsageError(
        "TFRUN-603",
        f"the global batch of {batch} is larger than the data of {held}",
        where=where,
        expected=f"batch_size of {sizes}",
        fix="batch_size is the batch of all workers together; make it smaller",
    )


def no_file(where: str, fix: str = "") -> UsageError:
    return UsageError(
        "TFRUN-604",
        "no file has this name or matches this pattern",
        where=where,
        expected="files that every worker can read",
        fix=fix,
    )


def one_replica_each(what: str, replicas: int, workers: int) -> UsageError:
    return UsageError(
        "TFRUN-107",
        f"{what} gives each worker one part of a batch, but the job's {replicas} replicas are on "
        f"{workers} worker{'s' if workers > 1 else ''}",
        expected="data that fit or evaluate reads, or a loop outside of a tf.function",
        fix="Pass the dataset itself to fit; iterate over it outside of the tf.function, and call "
        "that with each batch; or leave out --replicas",
    )


def not_divided_by_batch(policy: str) -> UsageError:
    return UsageError(
        "TFRUN-107",
        "each batch has to be divided among replicas, but this pipeline is not: its policy is "
        f"{policy}",
        where="tf.data.Options.experimental_distribute.auto_shard_policy",
        expected="AUTO or DATA, and every worker reads the whole data",
        fix="Leave the policy out, or --replicas",
    )


def vanished(path: str, reason: str) -> TfrunError:
    return TfrunError(
        "TFRUN-604",
        f"the file cannot be read any more: {reason}",
        where=_origins.get(path, path),
        expected="files that stay as they are while a job runs",
        fix='Put it back, or pass on_error="skip" to leave its samples out',
    )


def no_url(pattern: str) -> UsageError:
    return UsageError(
        "TFRUN-604",
        "this is a URL, and only Dataset.from_tfrecords takes one",
        where=pattern,
        expected="files that every worker can read",
        fix="Mount the storage as a file system, or write the samples to TFRecord files",
    )


def no_room_for_copy(folder: str, needed: int, free: int) -> TfrunError:
    return TfrunError(
        "TFRUN-618",
        f"there is no room for a copy of the data: it has {needed:,} bytes, and {free:,} are free",
        where=folder,
        expected="each machine to hold all of it, as any sample may be read there",
        fix="Name a larger directory with TMPDIR, or mount the storage as a file system",
    )


def unreadable(path: str, error: OSError) -> TfrunError:
    """Before anything is known of its samples, so that none of them can be left out."""
    return TfrunError(
        "TFRUN-604",
        f"the file cannot be read: {error.strerror or error}",
        where=_origins.get(path, path),
        expected="files that every worker can read",
    )


def cut_off(path: str, offset: int, reason: str) -> TfrunError:
    """A wrong length: where the next record begins is not known, so this one cannot be left out."""
    return TfrunError(
        "TFRUN-605",
        f"the record at byte {offset} is corrupt: {reason}",
        where=_origins.get(path, path),
        expected="a whole TFRecord file",
        fix="Write the file again, or leave it out of the list",
    )


def corrupt(path: str, offset: int, reason: str) -> TfrunError:
    return TfrunError(
        "TFRUN-605",
        f"the record at byte {offset} is corrupt: {reason}",
        where=_origins.get(path, path),
        fix='Write the file again, or pass on_error="skip" to leave damaged records out',
    )


def corrupt_compressed(path: str, record: int, compression: str, reason: str) -> TfrunError:
    return TfrunError(
        "TFRUN-605",
        f"record {record} is corrupt, or the file is not {compression}: {reason}",
        where=_origins.get(path, path),
        fix="Write the file again; in a compressed file, no record can be left out",
    )


def compressed(path: str) -> UsageError:
    return UsageError(
        "TFRUN-606",
        "the file is compressed, so no record in it can be found without reading all records "
        "before it",
        where=_origins.get(path, path),
        expected="an uncompressed TFRecord file",
        fix="Write it without compression (the records in it may be compressed, as JPEG is), or "
        'read it in sequence, unshuffled, with compression="GZIP" (or "ZLIB"), and shard="FILE" if '
        "each worker is to read files of its own",
    )


def bad_argument(what: str, where: str, expected: str, fix: str = "") -> UsageError:
    return UsageError("TFRUN-607", what, where=where, expected=expected, fix=fix)


def bad_sample(index: int, reason: str) -> TfrunError:
    return TfrunError(
        "TFRUN-608",
        f"sample {index} cannot be read: {reason}",
        where="Dataset.from_source",
        expected="source[i] to give samples of one structure, dtype and shape",
        fix='Repair the source, or pass on_error="skip" to leave such samples out',
    )


def deleted(method: str) -> TfrunError:
    return TfrunError(
        "TFRUN-619",
        f"the dataset that is read here has been deleted (its {method} was to be called)",
        fix="Keep the dataset in a variable for as long as anything reads it",
    )


def not_the_same_arrays(path: str) -> TfrunError:
    return TfrunError(
        "TFRUN-609",
        "the workers of this machine passed different arrays to Dataset.from_arrays",
        where=path,
        expected="the whole data, the same on every worker, in the same order of calls",
        fix="Do not divide the data by rank: tfrun gives each worker its part of every batch",
    )


def no_ledger(run_dir: str, reason: str) -> UsageError:
    return UsageError(
        "TFRUN-610",
        reason,
        where=run_dir,
        expected="the run directory of a job that ran with --ledger",
        fix="`ls tfrun-runs` shows the runs here; start the job with --ledger",
    )


def bad_ledger(path: str, offset: int | None, reason: str) -> TfrunError:
    return TfrunError(
        "TFRUN-611",
        f"the ledger proves nothing: {reason}",
        where=path if offset is None else f"{path}, byte {offset}",
    )


def other_place(what: str, where: str) -> TfrunError:
    return TfrunError(
        "TFRUN-617",
        f"the next sample of this epoch is not defined: {what}",
        where=where,
        expected="the batch and the data that the state was kept with",
        fix="Keep both until the epoch has ended (between two epochs they may change), or begin "
        "anew with --fresh",
    )


def doubt_place(what: str) -> None:
    """Reports that training goes on where some samples come twice or not at all."""
    text = (
        f"{what}. Training continues at about the same place, so some samples of this epoch are "
        "used twice or not at all. Use the same batch and data on any number of workers, or a "
        "tfrun.Dataset, which can continue at any sample"
    )
    channel.emit(reports.DoubtRaised(code="TFRUN-617", text=text))


@contextlib.contextmanager
def coded_sharding() -> Iterator[None]:
    """Gives TensorFlow's error about a pipeline that cannot be divided by its files a code.

    tensorflow/core/grappler/optimizers/data/auto_shard.cc; it comes with the first element.
    """
    try:
        yield
    except Exception as error:
        if "Could not apply FILE based sharding" in str(error):
            raise UsageError(
                "TFRUN-612",
                "the pipeline reads fewer files than there are workers, and is divided by files",
                where="tf.data.Options.experimental_distribute.auto_shard_policy",
                expected="at least as many files as workers, where the policy is FILE, or AUTO "
                "for files",
                fix="Write the data as more files, set the policy to DATA, or use "
                "tfrun.Dataset.from_tfrecords, where any number of workers shares any number of "
                "files",
            ) from error
        raise


def too_few_compressed_files(files: int, replicas: int) -> UsageError:
    return UsageError(
        "TFRUN-612",
        f"there are {files} files for {replicas} replicas, and each reads files of its own",
        where='Dataset.from_tfrecords, shard="FILE"',
        expected="at least as many files as replicas",
        fix='Write the data as more files, or leave `shard="FILE"` out: then every worker reads '
        "all files and keeps its part",
    )


def check_arguments(batch_size: object, on_error: object) -> None:
    """Raises TFRUN-607 where a dataset cannot be made with these."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        what = f"{batch_size!r} is not a number of samples"
        raise bad_argument(what, "tfrun.Dataset, batch_size", "a whole number from 1")
    if on_error not in ("raise", "skip"):
        what = f"{on_error!r} is not a way to deal with errors"
        raise bad_argument(what, "tfrun.Dataset, on_error", '"raise" or "skip"')


def check_shard(shard: object, compression: str) -> None:
    """Raises TFRUN-607 where records cannot be shared out in this way."""
    if shard not in ("DATA", "FILE") or (shard == "FILE" and not compression):
        what = f"shard={shard!r} is not for these files"
        raise bad_argument(what, "Dataset.from_tfrecords, shard", 'compression and "FILE"')
