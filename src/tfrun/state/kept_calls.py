"""Keeps the results of finished trainings beside the checkpoints, on disk or in a storage."""

from __future__ import annotations

import logging
from pathlib import Path

from tfrun.checkpoint import durable_files
from tfrun.checkpoint.background_copies import BackgroundCopies
from tfrun.checkpoint.remote_directory import RemoteDirectory

AGAIN_SECONDS = 60.0  # that a preempted job waits for a storage, as for a checkpoint
_log = logging.getLogger("tfrun")


class LocalCalls:
    """In a directory on disk: copied at once.

    Args:
      folder: where to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unsaved: dict[str, Path] = {}

    def keep(self, path: Path) -> str:
        """Keeps what a training has left; returns what failed.

        Args:
          path: the file among the snapshots; where there was no room for it, it is not there.
        """
        target = self._folder / path.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            durable_files.copy(path, target)
        except OSError as error:
            self._unsaved[path.name] = path
            if path.exists():
                _warn(target, str(error))
            return f"{target}: {error.strerror}"
        self._unsaved.pop(path.name, None)
        return ""

    def keep_missing(self, path: Path) -> None:
        """Keeps what another chief has kept on another machine's disk."""
        if not (self._folder / path.name).exists():
            self.keep(path)

    def keep_again(self) -> str:
        """Tries again what `keep` could not do; returns what fails still."""
        return next(filter(None, map(self.keep, tuple(self._unsaved.values()))), "")

    def close(self, seconds: float) -> None:
        """Nothing goes on."""


class RemoteCalls:
    """In object storage: copied by a thread, as it may take long."""

    def __init__(self, directory: RemoteDirectory) -> None:
        self._where = f"{directory.where}/calls"
        self._copies = BackgroundCopies(
            directory.keep_call, lambda path, why: _warn(f"{self._where}/{path.name}", why)
        )
        self._missing = BackgroundCopies(
            lambda path: directory.has_call(path.name) or directory.keep_call(path),
            lambda path, why: _warn(f"{self._where}/{path.name}", why),
        )

    def keep(self, path: Path) -> str:
        """As `LocalCalls.keep`; what fails is said later."""
        if path.exists():
            self._copies.submit(path)
        return ""

    def keep_missing(self, path: Path) -> None:
        """As that of `LocalCalls`."""
        if path.exists():
            self._missing.submit(path)

    def keep_again(self) -> str:
        """As that of `LocalCalls`; waits for what is being copied."""
        return self._copies.again(AGAIN_SECONDS)

    def close(self, seconds: float) -> None:
        """Waits for what is being copied, so many seconds at most; says what is not."""
        if problem := self._copies.flush(seconds):
            _warn(self._where, problem)


def _warn(where: object, why: str) -> None:
    _log.warning("The result of a fit call is not saved to %s: %s.", where, why)
