"""`tfrun.Dataset`: exact data for `fit`, `evaluate`, `predict` and custom loops."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import tensorflow as tf

from tfrun.data import errors
from tfrun.data.ledger import writer as ledger
from tfrun.data.order.permutation import Order
from tfrun.data.order.position import Position
from tfrun.data.order.reading_plan import ReadingPlan, Stage
from tfrun.data.order.shards import Replicas
from tfrun.data.pipeline import batches
from tfrun.data.sources.compressed import compressed_records
from tfrun.data.sources.records import FileSource, RecordSource, matching
from tfrun.data.sources.remote_files import has_url, local_paths
from tfrun.data.sources.source import SequenceSource, Source, Tolerant, array_source
from tfrun.data.sources.stream import StreamSource
from tfrun.data.training_place import TrainingPlace
from tfrun.job.world import world

OnError = Literal["raise", "skip"]


class Dataset(TrainingPlace):
    """Samples in global batches, the same ones on any number of workers and after any resume.

    Made by `from_arrays`, `from_source`, …, which take:

    - `batch_size`: samples in a *global* batch, that of all workers together.
    - `shuffle`: give each epoch an order of its own, a permutation of all samples. It is a pure
      function of (seed, epoch, step), costs no memory and is found in O(1) at any step.
    - `seed`: the seed of that order and of random map functions.
    - `on_error`: "raise", or "skip": leave out what cannot be read, and count it in `skipped`.

    Attributes:
      position: the next global batch of training. Set it to go on from there.
      samples: number of samples in an epoch.
      batch_size: samples in a global batch; the last one of an epoch may be shorter.

    Example:
        ```python
        data = tfrun.Dataset.from_tfrecords("train-*", parse, batch_size=256, shuffle=True)
        model.fit(data, epochs=3)
        ```
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
          batch_size: samples in a global batch.
          shuffle: whether each epoch has another order, see the class.
          seed: the seed of that order and of random map functions.
          on_error: "raise", or "skip" to leave out samples that cannot be read.
          concurrent: whether `source[i]` may be called from several threads at once. A file handle
            that it seeks in may not, nor a Parquet file of pyarrow.

        Raises:
          UsageError: TFRUN-601 (empty), TFRUN-603 (batch larger than the data), TFRUN-607.
          TfrunError: TFRUN-608 where a sample cannot be read.

        Example:
            ```python
            file = h5py.File("train.h5")
            data = tfrun.Dataset.from_source(file["images"], batch_size=256, shuffle=True)
            ```
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
          batch_size: samples in a global batch.
          shuffle: whether each epoch has another order, see the class.
          seed: the seed of that order and of random map functions.

        Raises:
          UsageError: TFRUN-601 (empty), TFRUN-602 (different lengths), TFRUN-603 (batch larger
            than the data), TFRUN-607.
          TfrunError: TFRUN-609 where workers of a machine pass different arrays.

        Example:
            ```python
            data = tfrun.Dataset.from_arrays((x, y), batch_size=256, shuffle=True)
            ```
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

        Where each record begins is found once and kept beside the file (or in the run directory).
        The checksum of a record is checked when it is first read.

        Args:
          files: a pattern, or several; the files that match one are sorted by name. Those of an
            s3:// or gs:// URL are copied to each machine's disk first, and go with the job.
          parse: makes a sample of a record, a scalar string tensor; see `map`.
          batch_size: samples in a global batch.
          shuffle: whether each epoch has another order, see the class.
          seed: the seed of that order and of random map functions.
          on_error: "raise", or "skip" to leave out samples that cannot be read.
          compression: of the files. Compressed ones are read in sequence, by every worker from
            the start, and not shuffled, as with `from_tf_data`.
          shard: of compressed files, as tf.data's: "DATA", where every worker reads all and keeps
            its part of each batch, or "FILE": each reads files of its own. Then the workers decide
            who shares a batch; where their number changes in an epoch, samples may be missed.

        Raises:
          UsageError: TFRUN-601 (empty), TFRUN-603 (batch too large), TFRUN-604 (no file), TFRUN-606
            (`compression` is not stated), TFRUN-607; TFRUN-612 (too few files) when it is read.
          TfrunError: TFRUN-605 (cut off or damaged); for a URL TFRUN-704, TFRUN-618 (no room).

        Example:
            ```python
            data = tfrun.Dataset.from_tfrecords("train-*.tfrecord", parse, batch_size=256)
            ```
        """
        errors.check_shard(shard, compression)
        paths = local_paths(files)
        if compression:
            source = compressed_records(paths, compression, shuffle, on_error, shard)
        else:
            source = RecordSource(paths, is_copied=has_url(files))
        made = cls._of(source, batch_size, shuffle, seed, on_error)
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
          batch_size: samples in a global batch.
          shuffle: whether each epoch has another order, see the class.
          seed: the seed of that order and of random map functions.
          on_error: "raise", or "skip" to leave out samples that cannot be read.

        Raises:
          UsageError: TFRUN-603 (batch larger than the data), TFRUN-604 (no file), TFRUN-607.
          TfrunError: TFRUN-604 where a file has vanished.

        Example:
            ```python
            load = lambda path, content: tf.io.decode_png(content)
            data = tfrun.Dataset.from_files("images/*.png", load, batch_size=256)
            ```
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
          batch_size: samples in a global batch.
          samples: number of samples in an epoch; by default the pipeline is asked, and else
            walked through once.
          seed: the seed of random map functions.

        Raises:
          UsageError: TFRUN-601 (empty), TFRUN-603 (batch larger than the data), TFRUN-607 (also
            when an epoch has another number of samples).

        Example:
            ```python
            data = tfrun.Dataset.from_tf_data(lambda: tf.data.Dataset.range(1000), batch_size=50)
            ```
        """
        return cls._of(StreamSource(make, samples), batch_size, False, seed, "raise")

    @classmethod
    def _of(
        cls, source: Source, batch_size: int, shuffle: bool, seed: int, on_error: OnError
    ) -> Dataset:
        errors.check_arguments(batch_size, on_error)
        order = Order(samples=len(source), seed=seed, shuffle=shuffle)
        chosen = Tolerant(source) if on_error == "skip" else source
        return cls(ReadingPlan(source=chosen, order=order, batch=batch_size))

    def map(self, function: Callable[..., Any], *, random: bool | None = None) -> Dataset:
        """Returns this dataset with `function` applied to each sample.

        Args:
          function: takes the components of a sample as `tf.data.Dataset.map` passes them, in
            TensorFlow ops, and returns a sample of dense tensors.
          random: whether to pass `seed=`, an int64 tensor of shape [2] for `tf.random.stateless_*`
            that depends on the seed of the data, the epoch and the sample alone. By default, if
            `function` has a parameter of that name.

        Raises:
          TfrunError: TFRUN-608 where `function` fails for a sample, when that is read.

        Example:
            ```python
            data = data.map(lambda image, label: (tf.cast(image, tf.float32) / 255, label))
            ```
        """
        if random is None:
            random = "seed" in inspect.signature(function).parameters
        return self._with(stages=(*self.plan.stages, Stage(function=function, is_random=random)))

    def prefetch(self, batches: int = 2) -> Dataset:
        """Returns this dataset, reading ahead.

        Args:
          batches: how many of this worker's batches to have ready, 0 or more.

        Example:
            ```python
            data = data.prefetch(4)
            ```
        """
        return self._with(prefetch=batches)

    def with_batch_size(self, batch_size: int) -> Dataset:
        """Returns this dataset in batches of another size, from its beginning.

        Args:
          batch_size: samples in a global batch.

        Raises:
          UsageError: TFRUN-603 (batch larger than the data).

        Example:
            ```python
            valid = valid.with_batch_size(1024)
            ```
        """
        return self._with(batch=batch_size)

    def _with(self, **changes: Any) -> Dataset:
        return Dataset(dataclasses.replace(self.plan, **changes))

    @property
    def samples(self) -> int:
        """Number of samples in an epoch."""
        return self.plan.order.samples

    @property
    def batch_size(self) -> int:
        """Samples in a global batch."""
        return self.plan.batch

    @property
    def steps_per_epoch(self) -> int:
        """Global batches in an epoch; the last one may be short."""
        return self.plan.steps

    def __len__(self) -> int:
        return self.steps_per_epoch

    @property
    def skipped(self) -> int:
        """Samples that this process has left out, with `on_error="skip"`."""
        return getattr(self.plan.source, "skipped", 0)

    @property
    def position(self) -> Position:
        """The global batch after the last one that was handed to training."""
        return self._position

    @position.setter
    def position(self, position: Position) -> None:
        if not self.plan.has(position) or (position.skip and self.is_by_file):
            raise errors.bad_argument(
                f"{position} is not in the data",
                "Dataset.position",
                f"an epoch from 0 and a step from 0 to {self.steps_per_epoch - 1}",
            )
        self._position, self._sought = position, True

    def sample_ids(self, epoch: int, step: int, rank: int = 0, size: int = 1) -> Any:
        """Returns the samples of a global batch, or of one worker's part of it, in order.

        Args:
          epoch: from 0.
          step: from 0, below `steps_per_epoch`.
          rank: the worker's number, from 0.
          size: number of workers that share the batch; 1 for all of it.

        Returns:
          int64 of shape [samples in the part].

        Raises:
          UsageError: TFRUN-607 with `shard="FILE"`.

        Example:
            ```python
            first = data.sample_ids(epoch=0, step=0)  # the samples of the first batch
            ```
        """
        if self.is_by_file:
            what = 'with shard="FILE" a batch has no place in an order of all samples'
            raise errors.bad_argument(what, "Dataset.sample_ids", "another source")
        return self.plan.order.indices(epoch, *self.plan.share(step, rank, size))

    def tf_data(
        self, rank: int = 0, size: int = 1, epoch: int = 0, start_step: int = 0, skip: int = 0
    ) -> tf.data.Dataset:
        """Returns one worker's batches of one epoch as a plain `tf.data.Dataset`.

        Args:
          rank: the worker's number, from 0.
          size: number of workers that share each global batch.
          epoch: from 0.
          start_step: the first step, from 0.
          skip: samples at the beginning of its global batch that are left out.

        Returns:
          `steps_per_epoch - start_step` batches. Where this worker has no sample in a batch, its
          batch has zero samples.

        Example:
            ```python
            world = tfrun.world()
            for x, y in data.tf_data(world.rank, world.size, epoch=3):
                step(x, y)
            ```
        """
        count, begin = self.steps_per_epoch - start_step, epoch * self.steps_per_epoch + start_step
        made = batches(self.plan, Replicas(first=rank, total=size), begin, begin + count, skip)
        return made.apply(tf.data.experimental.assert_cardinality(count))

    def __iter__(self) -> Iterator[Any]:
        """Yields this worker's batches of the next epoch, or of the rest of it from `position`."""
        left, here = self.position, world()
        place, sought = self.start()
        how = "sought" if sought else "next"
        tape = ledger.open_tape(self, place, how=how, left=left, trains=False)
        steps = range(place.step, self.steps_per_epoch)
        made: Any = self.tf_data(here.rank, here.size, place.epoch, place.step, place.skip)
        with self.coded_errors():
            for step, batch in zip(steps, made, strict=True):
                after = place.epoch * self.steps_per_epoch + step + 1
                self.advance(Position.of(after, self.steps_per_epoch))
                tape.taken(place.epoch, step, place.skip if step == place.step else 0)
                yield batch
        tape.settle()
