"""The objects below one URL: list, read, write whole, remove; with tries again and a deadline.

An object is there whole or not at all, whoever dies while it is written: that is what S3 and GCS
promise, for large ones (which fsspec sends in parts) too. There are no folders and no rename.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tfrun.job.errors import TfrunError
from tfrun.storage import failures, unawaited_threads
from tfrun.storage.failures import Kind, kind_of
from tfrun.storage.url import EXTRAS, scheme_of

T = TypeVar("T")

PATIENCE = 60.0  # seconds for which a request is tried again
FIRST_WAIT, LONGEST_WAIT = 0.2, 8.0  # seconds between two tries
READ_SECONDS = 30  # that a storage may be silent
CONNECT_SECONDS = 5
SLOWEST = 100_000  # bytes per second; a write that is slower than this hangs
# gcsfs's own class at the top asks about the kind of each bucket, and needs more rights for it.
_CLASSES = {"s3": ("s3fs", "S3FileSystem"), "gs": ("gcsfs.core", "GCSFileSystem")}
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_making = threading.Lock()


class Entry(NamedTuple):
    """What a listing says about an object.

    Attributes:
      size: in bytes.
      version: differs between two objects that have been written under one name.
    """

    size: int
    version: str


class Objects:
    """The objects below a URL, by their names relative to it ("ckpt-5/state.json").

    Every method raises TfrunError TFRUN-704 where the storage refuses, or has not answered for
    `patience` seconds; FileNotFoundError where one object is missing; OSError where this machine's
    disk is full. May be used by several threads.

    Args:
      url: as `url.normal` returns it.
      patience: for how many seconds a request that is throttled or cut off is tried again.

    Attributes:
      failed: why a request was last tried again; None where none was.
    """

    def __init__(self, url: str, *, patience: float = PATIENCE) -> None:
        self.url, self._patience = url, patience
        self._root = url.partition("://")[2]
        self.failed: Exception | None = None

    def at(self, name: str) -> str:
        """Returns the URL of an object."""
        return f"{self.url}/{name}"

    def refused(self, why: str) -> TfrunError:
        """Returns TFRUN-704 for what the storage has not done, though it has said no error."""
        return failures.unusable(self.url, OSError(errno.EIO, why))

    def list(self, beginning: str = "") -> dict[str, Entry]:
        """Returns the objects whose names begin so, in the order of their names."""

        def ask() -> dict[str, Any]:
            self._fs.invalidate_cache()
            with contextlib.suppress(FileNotFoundError):
                return self._fs.find(f"{self._root}/", prefix=beginning, detail=True)
            # No object or no bucket? The former is an empty list.
            self._fs.ls(self._root.partition("/")[0], detail=False)
            return {}

        found = {}
        for path, info in sorted(self._try(ask).items()):
            name = path.removeprefix(f"{self._root}/")
            if info.get("type") == "file" and name.startswith(beginning):
                version = info.get("ETag") or info.get("etag") or info.get("mtime") or ""
                found[name] = Entry(int(info["size"]), str(version))
        return found

    def read(self, name: str) -> bytes:
        return self._try(lambda: self._fs.cat_file(self._path(name)), one=True)

    def fetch(self, name: str, target: Path) -> None:
        """Reads an object into a file."""
        self._try(lambda: self._fs.get_file(self._path(name), str(target)), one=True)

    def write(self, name: str, data: bytes) -> None:
        seconds = _may_take(len(data))
        self._try(lambda: self._fs.pipe_file(self._path(name), data, timeout=seconds))

    def put(self, name: str, source: Path) -> None:
        """Writes a file's content; a large one in parts."""
        seconds = _may_take(source.stat().st_size)
        self._try(lambda: self._fs.put_file(str(source), self._path(name), timeout=seconds))

    def create(self, name: str, data: bytes) -> bool:
        """Writes an object that is not there yet; returns False where there is one.

        Two that create one at once: the storage decides, where it can (If-None-Match); else the
        last one, which each sees when it reads the object again.
        """
        path, seconds = self._path(name), _may_take(len(data))
        try:
            self._try(
                lambda: self._fs.pipe_file(path, data, mode="create", timeout=seconds), raw=True
            )
        except FileExistsError:
            return False
        except OSError as error:
            if "PreconditionFailed" not in str(error) and "pre-condition" not in str(error).lower():
                raise failures.unusable(self.url, error) from error
            return False
        except Exception as error:
            raise failures.unusable(self.url, error) from error
        return True

    def remove(self, names: Iterable[str]) -> None:
        """Removes objects; one that is not there is none to remove."""
        for name in names:

            def remove(name: str = name) -> None:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(self._path(name))

            self._try(remove)

    def copy(self, name: str, to: Objects) -> None:
        """Copies an object within the storage, without this machine's network."""
        self._try(lambda: self._fs.cp_file(self._path(name), to._path(name)), one=True)

    def matching(self, pattern: str) -> list[str]:
        """Returns the names of the objects that match a pattern (`*`, `**`, `?`), sorted."""
        self._fs.invalidate_cache()
        found = self._try(lambda: self._fs.glob(self._path(pattern)))
        return sorted(path.removeprefix(f"{self._root}/") for path in found)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @functools.cached_property
    def _fs(self) -> Any:
        return _file_system(self.url)

    def _try(self, ask: Callable[[], T], *, one: bool = False, raw: bool = False) -> T:
        """Returns what a request returns; tries again what may come right by itself.

        Args:
          ask: makes the request.
          one: FileNotFoundError is raised as it is.
          raw: all errors are.
        """
        until, wait = time.monotonic() + self._patience, FIRST_WAIT
        while True:
            try:
                return ask()
            except TfrunError:
                raise
            except Exception as error:
                if isinstance(error, OSError) and error.errno in _NO_ROOM:
                    raise  # this machine's disk, of which a caller knows more
                is_last = time.monotonic() + wait > until
                if kind_of(error) is not Kind.TRANSIENT or is_last:
                    if raw or (one and isinstance(error, FileNotFoundError)):
                        raise
                    raise failures.unusable(self.url, error) from error
                self.failed = error
            # Many workers that were refused together do not come back together.
            time.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, LONGEST_WAIT)


def _may_take(size: int) -> float:
    """How many seconds a write of so many bytes may take.

    The time-outs of a request begin when all of it has been sent: a storage that takes no more
    bytes, or does not say "100 Continue", would be waited for for ever.
    """
    return READ_SECONDS + size / SLOWEST


def load(url: str) -> Any:
    """Imports the package of a URL and returns its class.

    Raises:
      UsageError: TFRUN-704, where it is missing.
    """
    module, name = _CLASSES[scheme_of(url)]
    try:
        with _making:  # not thread safe in some versions
            return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise failures.not_installed(url, error) from error


def _file_system(url: str) -> Any:
    """Makes fsspec's file system of a URL, with its own standard settings from the environment.

    Raises:
      UsageError: TFRUN-704, where its package is missing, or what is configured is wrong.
    """
    scheme = scheme_of(url)
    make = load(url)
    # They log each try; what comes of it is said once, here.
    logging.getLogger(EXTRAS[scheme][1]).addHandler(logging.NullHandler())
    # A listing that another process has changed must not be remembered.
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme == "s3":
        # Tried again here, where there is one deadline for all of it.
        options["config_kwargs"] = {
            "retries": {"max_attempts": 1, "mode": "standard"},
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
        }
    else:
        from aiohttp import ClientTimeout

        # A number would be for a whole request, and a large object takes longer than that.
        options["requests_timeout"] = ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS
        )
    try:
        with _making:
            unawaited_threads.use()
            made = make(**options)
    except Exception as error:
        raise failures.unusable(url, error) from error
    if scheme == "s3":
        made.retries = 2
    else:
        _try_twice(made)
    return made


def _try_twice(made: Any) -> None:
    """Has gcsfs try a request twice; it tries for half a minute otherwise, past our deadline."""
    from gcsfs.retry import retry_request

    repeated: Any = retry_request  # what makes a decorator of it is hidden from type checkers
    if once := getattr(type(made)._request, "__wrapped__", None):
        made._request = functools.partial(repeated(retries=2)(once), made)
