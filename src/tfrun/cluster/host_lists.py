"""Host lists: `a,b:2,user@c`, ranges, and host files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tfrun.cluster.address import ip_of, is_broken_ipv4, shown
from tfrun.cluster.host_ranges import MAX_HOSTS, expand, split_list
from tfrun.job.errors import UsageError

# Not only RFC 1123: an alias in ~/.ssh/config is a host as well. No leading dash, which ssh would
# take for an option.
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@\\+-]*")
_SLOTS = re.compile(r"0*[1-9][0-9]{0,4}")
_MAX_SLOTS = 65535
_MAX_NAME = 253
_EXPECTED = 'hosts like "a,b:2,user@c,n[1-11],[fd00::1]:2", where :2 is the number of workers'


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine that takes workers.

    Attributes:
      name: the host name, alias of ~/.ssh/config or IP address (IPv6 without brackets).
      user: whom ssh logs in as; "" is ssh's own choice.
      slots: how many workers it takes.
    """

    name: str
    user: str = ""
    slots: int = 1

    @property
    def destination(self) -> str:
        """What the ssh command is given."""
        return f"{self.user}@{self.name}" if self.user else self.name

    @property
    def identity(self) -> str:
        """Equal for two spellings of one name: `N1.`, `n1`; `FD00::0:1`, `fd00::1`."""
        name = self.name.lower().rstrip(".")
        ip = ip_of(name)
        return ip.compressed if ip else name


def parse_hosts(text: str, *, where: str = "-H") -> tuple[Host, ...]:
    """Reads a list of hosts.

    Args:
      text: hosts with commas between them: `[user@]host[:slots]`; a host name may have ranges,
        `n[01-03,07]`; an IPv6 address stands in brackets when slots follow.
      where: the option that it came from, for the error.

    Raises:
      UsageError: TFRUN-209 when it is malformed, TFRUN-210 when a host is there twice.
    """
    entries = split_list(text)
    hosts = []
    for number, entry in enumerate(entries, start=1):
        place = where if len(entries) == 1 else f"{where}, entry {number}"
        hosts += [(place, host) for host in _parse_entry(entry, place)]
    return _distinct(hosts, where)


def parse_hostfile(text: str, *, where: str) -> tuple[Host, ...]:
    """Reads a host file: a host on each line, with `slots=2` or `:2` after it; # is a comment.

    Raises:
      UsageError: TFRUN-209 when it is malformed, TFRUN-210 when a host is there twice; both with
        the line's number.
    """
    hosts = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        place = f"{where}, line {number}"
        entry, *options = words
        if len(split_list(entry)) > 1:
            raise _refuse(f"{shown(entry)} is more than one host", place, "one host on each line")
        slots = _slots_option(options, place)
        if slots and _split_slots(entry, place)[1]:
            raise _refuse(f"{shown(entry)} has slots twice", place, "host:2, or host slots=2")
        hosts += [(place, host) for host in _parse_entry(entry + slots, place)]
    return _distinct(hosts, where)


def _slots_option(options: list[str], place: str) -> str:
    if not options:
        return ""
    match = re.fullmatch(r"slots=(\S*)", options[0])
    if match is None or len(options) > 1:
        raise _refuse(f"{shown(' '.join(options))} is not known", place, "slots=N or nothing")
    return f":{match.group(1)}"


def _parse_entry(entry: str, place: str) -> list[Host]:
    if not entry:
        raise _refuse("an entry is empty", place, fix="Remove the extra comma")
    text, slots = _split_slots(entry, place)
    user, at, name = text.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise _refuse(f"{shown(entry)} has a user that is not a user's name", place)
    if name.startswith("[") and name.endswith("]") and ip_of(name[1:-1]):
        return [Host(name=name[1:-1], user=user, slots=slots or 1)]
    try:
        names = expand(name)
    except ValueError as error:
        raise _refuse(f"{shown(entry)} {error}", place) from None
    for single in names:
        _check_name(single, entry, place)
    return [Host(name=single, user=user, slots=slots or 1) for single in names]


def _split_slots(entry: str, place: str) -> tuple[str, int]:
    """Returns what stands before the colon, and the slots; 0 when there are none."""
    bracket = entry.rfind("]")
    before, colon, after = entry[bracket + 1 :].rpartition(":")
    if not colon:
        return entry, 0
    if ":" in before:
        fix = f"Write [{entry:.60}]" if ip_of(entry) else ""
        raise _refuse(f"{shown(entry)} has several colons", place, fix=fix)
    if not _SLOTS.fullmatch(after) or int(after) > _MAX_SLOTS:
        # host:22 would be read as 22 slots, host:ssh is plainly meant as a port.
        fix = "The SSH port belongs in ~/.ssh/config"
        raise _refuse(f"{shown(entry)} has no number of slots after the colon", place, fix=fix)
    return entry[: bracket + 1] + before, int(after)


def _check_name(name: str, entry: str, place: str) -> None:
    labels = name.removesuffix(".").split(".")
    if not _NAME.fullmatch(name) or not all(labels) or len(name) > _MAX_NAME:
        raise _refuse(f"{shown(entry)} is not a host", place)
    if is_broken_ipv4(name):
        problem = "has an IPv4 address that is not four numbers from 0 to 255"
        raise _refuse(f"{shown(entry)} {problem}", place)


def _distinct(hosts: Iterable[tuple[str, Host]], where: str) -> tuple[Host, ...]:
    seen: dict[str, str] = {}
    found = []
    for place, host in hosts:
        if host.identity in seen:
            first = seen[host.identity]
            raise UsageError(
                "TFRUN-210",
                f"the host {host.name!r} appears twice, first in {first}",
                where=place,
                expected="each host once",
                fix=f"For more workers on it write {host.name}:2",
            )
        seen[host.identity] = place
        found.append(host)
    if not found:
        raise _refuse("there is no host", where)
    if len(found) > MAX_HOSTS:
        raise _refuse(f"there are more than {MAX_HOSTS} hosts", where)
    return tuple(found)


def _refuse(what: str, where: str, expected: str = _EXPECTED, fix: str = "") -> UsageError:
    return UsageError("TFRUN-209", what, where=where, expected=expected, fix=fix)
