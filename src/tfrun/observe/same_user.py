"""Finds whose process is at the other end of a connection over loopback. Linux only."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

LOOPBACK = "127.0.0.1"
_ESTABLISHED = "01"
_TABLE = Path("/proc/net/tcp")


def is_same_user(peer: tuple[str, int], here: tuple[str, int], table: Path = _TABLE) -> bool:
    """Returns whether the process that has connected is one of this process's user.

    Loopback is open to everybody who is logged in, so an address alone proves nothing; the kernel
    knows who has opened the other end.

    Args:
      peer: the connection's other end, as the server sees it.
      here: its end on this side.
      table: the kernel's list of connections, with their owners.
    """
    if peer[0] != LOOPBACK or here[0] != LOOPBACK:
        return False
    try:
        with table.open() as lines:
            return owner_of(lines, _entry(peer), _entry(here)) == os.getuid()
    except OSError:
        return False  # another system than Linux


def owner_of(lines: Iterable[str], local: str, remote: str) -> int | None:
    """Finds the user who holds an end of a connection; None when nobody does.

    Args:
      lines: /proc/net/tcp: number, local and remote address, state, …, uid (8th), …, inode (10th).
      local: the end, "0100007F:1F90".
      remote: the other one.
    """
    for line in lines:
        fields = line.split()
        # A socket that its process has closed belongs to uid 0 and has no inode.
        if fields[1:4] == [local, remote, _ESTABLISHED] and fields[9] != "0":
            return int(fields[7])
    return None


def _entry(address: tuple[str, int]) -> str:
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
