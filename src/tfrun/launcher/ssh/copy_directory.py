"""Copies the script's directory to hosts that do not share it: packed here, unpacked there."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

from tfrun.job.errors import UsageError
from tfrun.job.spec import Program

# What makes copies slow and is of no use on another machine.
LEFT_OUT = frozenset({".git", ".venv", "venv", "__pycache__", "tfrun-runs", "node_modules"})
MAX_BYTES = 1 << 30  # of all files: more is data, or somebody's whole home directory
CHUNK = 1 << 16


def synced(program: Program) -> tuple[Path, Program]:
    """Returns the directory to copy, and the program as it is to be called in the copy.

    It is the script's directory, or the working directory for a module.
    """
    if program.is_module:
        return Path.cwd().resolve(), program
    script = Path(program.target).absolute()
    return script.parent.resolve(), dataclasses.replace(program, target=script.name)


def pack(directory: Path, into: IO[bytes], *, run_dir: Path) -> None:
    """Writes the directory's files as a tar archive.

    Raises:
      UsageError: TFRUN-105 when they have more than 1 GiB.
    """
    total = 0

    def choose(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        nonlocal total
        path = directory / member.name
        if path.name in LEFT_OUT or path == run_dir:
            return None
        if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
            return None  # sockets and pipes mean nothing elsewhere
        total += member.size
        if total > MAX_BYTES:
            raise UsageError(
                "TFRUN-105",
                f"{str(directory)!r} has more than {MAX_BYTES >> 30} GiB to copy to each host",
                where="--sync",
                fix="Put the script into a directory of its own, and data on each host",
            )
        return member

    with tarfile.open(fileobj=into, mode="w:gz", compresslevel=1) as archive:
        for name in sorted(os.listdir(directory)):  # noqa: PTH208 (names, not paths)
            archive.add(directory / name, arcname=name, filter=choose)


async def unpack(directory: Path, size: int, receive: Callable[[int], Awaitable[bytes]]) -> None:
    """Takes an archive of `size` bytes in, and unpacks it into a new directory.

    A directory that is there is whole, from an agent before this one: it stays as it is, with
    what the script has written there.

    Raises:
      OSError: it cannot be written, or not all of it came.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    new = directory.with_name(f".{directory.name}.{os.getpid()}")
    packed = new.with_suffix(".tar.gz")
    try:
        with packed.open("xb") as file:
            while size:
                if not (chunk := await receive(min(size, CHUNK))):
                    raise ConnectionError(0, "the copy was cut off")
                file.write(chunk)
                size -= len(chunk)
        if not directory.exists():
            new.mkdir()
            with tarfile.open(packed) as archive:
                # "tar" trusts us with links that lead out of the directory; early 3.10s ignore it.
                archive.extraction_filter = getattr(tarfile, "tar_filter", None)
                archive.extractall(new)
            new.rename(directory)
    finally:
        packed.unlink(missing_ok=True)
        shutil.rmtree(new, ignore_errors=True)
