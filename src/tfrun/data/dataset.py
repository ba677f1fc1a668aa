"""`tfrun.Dataset`: exact data for `fit`, `evaluate`, `predict` and custom loops."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import tensorflow as tf

from tfrun.data import errors
from tfrun.data.epochs import Epochs
from tfrun.data.order.reading_plan import OnError, Stage, make_plan
from tfrun.data.sources.compressed import compressed_records
from tfrun.data.sources.records import FileSource, RecordSource, matching
from tfrun.data.sources.source import SequenceSource, Source, array_source
from tfrun.data.sources.stream import StreamSource


class Dataset(Epochs):
    """Samples in global batches, the same ones on any number of workers and after any resume.

    Made by `from_arrays`, `from_source`, …; all take these:

    Args:
      batch_size: samples in a *global* batch, that of all workers together.
      shuffle: give each epoch an order of its own, a permutation of all samples. It is a pure
        function of (seed, epoch, step), costs no memory and is found in O(1) at any step.
      seed: of the order and of random map functions.
      on_error: "raise", or "skip" to leave out samples that cannot be read and count them in
        `skipped`.

    Attributes:
      position: the next global batch of training. Set it to go on from there.
      samples: number of samples in an epoch.
      batch_size: samples in a global batch; the last one of an epoch may be shorter.
    """

    @classmethod
    def from_source(
        cls,
        source: Any,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        on_error: OnError = "raise",
        concurrent: bool = False,
    ) -> Dataset:
        """Makes a dataset of anything with `__len__` and `__getitem__`.

        Args:
          source: `source[i]`, i from 0, is a sample: a nest of arrays or numbers whose structure,
            dtypes and shapes are those of `source[0]`.
          batch_size: see the class, as for the rest.
          shuffle: likewise.
          seed: likewise.
          on_error: likewise.
          concurrent: whether `source[i]` may be called from several threads at once. A file handle
            that it seeks in may not, nor a Parquet file of pyarrow.

        Raises:
          UsageError: TFRUN-601 (empty), TFRUN-603 (batch larger than the data), TFRUN-607.
          TfrunError: TFRUN-608 where a sample cannot be read.
        """
        return cls._of(SequenceSource(source, concurrent), batch_size, shuffle, seed, on_error)

    @classmethod
    def from_arrays(
        cls, arrays: Any, *, batch_size: int, shuffle: bool = False, seed: int = 0
    ) -> Dataset:
        """Makes a dataset of arrays whose rows are the samples.

        Args:
          arrays: an array, or a tuple or dictionary of arrays with the same first dimension, or a
            function without arguments that returns them. In one process nothing is copied. The
            workers of one machine read one copy: with a function, only one of them calls it;
            without, each may drop its own arrays after this call. Memory maps stay as they are.
          batch_size: see the class, as for the rest.
          shuffle: likewise.
          seed: likewise.

        Raises:
          UsageError: TFRUN-601 (empty), TFRUN-602 (different lengths), TFRUN-603 (batch larger
            than the data), TFRUN-607.
          TfrunError: TFRUN-609 where workers of a machine pass different arrays.
        """
        return cls._of(array_source(arrays), batch_size, shuffle, seed, "raise")

    @classmethod
    def from_tfrecords(
        cls,
        files: str | Sequence[str],
        parse: Callable[..., Any] | None = None,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        on_error: OnError = "raise",
        compression: Literal["", "GZIP", "ZLIB"] = "",
        shard: Literal["DATA", "FILE"] = "DATA",
    ) -> Dataset:
        """Makes a dataset of the records of TFRecord files.

        Where each record begins is found once and kept beside the file (in the run directory
        where that cannot be written). The checksum of a record is checked when it is first read.

        Args:
          files: a pattern, or several; the files that match one are sorted by name.
          parse: makes a sample of a record, a scalar string tensor; see `map`.
          batch_size: see the class, as for the rest.
          shuffle: likewise.
          seed: likewise.
          on_error: likewise.
          compression: of the files. Compressed ones are read in sequence, by every worker from
            the start, and not shuffled, as with `from_tf_data`.
          shard: of compressed files, as tf.data's `AutoShardPolicy`: "DATA", where every worker
            reads all and keeps its part of each batch, or "FILE", where each reads files of its
            own. Then which samples share a batch depends on the number of workers, batches differ
            by a few samples, and if that number changes in the middle of an epoch, samples of it
            may be left out or come twice.

        Raises:
          UsageError: TFRUN-601 (empty), TFRUN-603 (batch larger than the data), TFRUN-604 (no
            file), TFRUN-606 (compressed, and `compression` does not say so), TFRUN-607; TFRUN-612
            (fewer files than workers) when it is read.
          TfrunError: TFRUN-605 where a file is cut off, or a record is damaged.
        """
        if shard not in ("DATA", "FILE") or (shard == "FILE" and not compression):
            what = f"shard={shard!r} is not for these files"
            raise errors.bad_argument(
                what, "Dataset.from_tfrecords, shard", 'compression and "FILE"'
            )
        if compression:
            source = compressed_records(matching(files), compression, shuffle, on_error, shard)
            made = cls._of(source, batch_size, False, seed, "raise")
            return made.map(parse) if parse else made
        made = cls._of(RecordSource(matching(files)), batch_size, shuffle, seed, on_error)
        return made.map(parse) if parse else made

    @classmethod
    def from_files(
        cls,
        files: str | Sequence[str],
        load: Callable[..., Any],
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        on_error: OnError = "raise",
    ) -> Dataset:
        """Makes a dataset in which each file is a sample.

        Args:
          files: a pattern, or several; the files that match one are sorted by name.
          load: makes a sample of (path, content), two scalar string tensors; see `map`.
          batch_size: see the class, as for the rest.
          shuffle: likewise.
          seed: likewise.
          on_error: likewise.

        Raises:
          UsageError: TFRUN-603 (batch larger than the data), TFRUN-604 (no file), TFRUN-607.
          TfrunError: TFRUN-604 where a file has vanished.
        """
        return cls._of(FileSource(matching(files)), batch_size, shuffle, seed, on_error).map(load)

    @classmethod
    def from_tf_data(
        cls,
        make: Callable[..., tf.data.Dataset],
        *,
        batch_size: int,
        samples: int | None = None,
        seed: int = 0,
    ) -> Dataset:
        """Makes a dataset of any deterministic `tf.data` pipeline, by position.

        Every worker walks through the whole pipeline and keeps its part of each global batch, and
        a resume walks to its place: use another source where there is one. The pipeline shuffles
        for itself, if at all, with a seed.

        Args:
          make: returns an epoch's samples, unbatched; takes the epoch (a scalar int64 tensor) if
            it has a parameter.
          batch_size: see the class.
          samples: number of samples in an epoch; by default the pipeline is asked, and else
            walked through once.
          seed: of random map functions.

        Raises:
          UsageError: TFRUN-601 (empty), TFRUN-603 (batch larger than the data), TFRUN-607 (also
            when an epoch has another number of samples).
        """
        return cls._of(StreamSource(make, samples), batch_size, False, seed, "raise")

    @classmethod
    def _of(
        cls, source: Source, batch_size: int, shuffle: bool, seed: int, on_error: OnError
    ) -> Dataset:
        return cls(make_plan(source, batch_size, shuffle, seed, on_error))

    def map(self, function: Callable[..., Any], *, random: bool | None = None) -> Dataset:
        """Returns this dataset with `function` applied to each sample.

        Args:
          function: takes the components of a sample as `tf.data.Dataset.map` passes them, in
            TensorFlow ops, and returns a sample of dense tensors.
          random: whether to pass `seed=`, an int64 tensor of shape [2] for `tf.random.stateless_*`
            that depends on the seed of the data, the epoch and the sample alone. By default, if
            `function` has a parameter of that name.
        """
        if random is None:
            random = "seed" in inspect.signature(function).parameters
        stage = Stage(function=function, is_random=random)
        return self._with(stages=(*self._plan.stages, stage))

    def prefetch(self, batches: int = 2) -> Dataset:
        """Returns this dataset with that many batches of this worker read ahead (2 unless told).

        Args:
          batches: 0 or more.
        """
        return self._with(prefetch=batches)

    def with_batch_size(self, batch_size: int) -> Dataset:
        """Returns this dataset in other global batches, from its beginning.

        Args:
          batch_size: samples in a global batch.

        Raises:
          UsageError: TFRUN-603 (batch larger than the data).
        """
        if batch_size > self.samples:
            raise errors.batch_too_large(batch_size, self.samples, "tfrun.Dataset")
        return self._with(batch=batch_size)

    def _with(self, **changes: Any) -> Dataset:
        return Dataset(dataclasses.replace(self._plan, **changes))
