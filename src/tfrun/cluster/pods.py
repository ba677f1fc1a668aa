"""Reads from the environment which pods or containers were started together. Pure.

The manifests of `tfrun render kubernetes` set these variables; so may anything else that starts
the same command on several machines:

    TFRUN_GROUP             host names of all, in rank order: train-[0-7].train
    TFRUN_GROUP_INDEX       which of them this one is, from 0; the first launches
    TFRUN_GROUP_PORT        the control port, on the first
    TFRUN_GROUP_TOKEN_FILE  a file with the job's secret, the same for all
    TFRUN_GROUP_ADDRESS     where the others reach this one; by default at its name
    TFRUN_GROUP_SLOTS       how many workers each takes; by default 1

A process that runs one task of a TF_CONFIG is of no such group, and has no port for others:

    TFRUN_HEALTH_PORT       where it answers at /healthz; by default nowhere
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfrun.cluster.host_lists import parse_hosts
from tfrun.job.errors import UsageError

INDEX, PORT, SLOTS = "TFRUN_GROUP_INDEX", "TFRUN_GROUP_PORT", "TFRUN_GROUP_SLOTS"
TOKEN_FILE, ADDRESS, HOSTS = "TFRUN_GROUP_TOKEN_FILE", "TFRUN_GROUP_ADDRESS", "TFRUN_GROUP"
HEALTH_PORT = "TFRUN_HEALTH_PORT"


@dataclass(frozen=True, kw_only=True)
class PodGroup:
    """This process's group.

    Attributes:
      hosts: the names of all machines, in rank order.
      index: this one's number.
      port: the control port, on the first machine.
      token_file: a file with the job's secret.
      address: where the others reach this machine; "" is its name.
      slots: how many workers each takes.
    """

    hosts: tuple[str, ...]
    index: int
    port: int
    token_file: str
    address: str = ""
    slots: int = 1

    @property
    def is_member(self) -> bool:
        """True when another process of the group launches the job."""
        return self.index > 0

    @property
    def agent(self) -> str:
        return self.agents[self.index]

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of agents are those of files, too: the hosts' up to the first dot."""
        short = tuple(host.partition(".")[0] for host in self.hosts)
        return short if len(set(short)) == len(short) else self.hosts


def group_of(environment: Mapping[str, str]) -> PodGroup | None:
    """Returns the group that this process is one of; None without one.

    Raises:
      UsageError: TFRUN-209 or 210 for malformed hosts, TFRUN-212 for the rest.
    """
    text = environment.get(HOSTS)
    if not text:
        return None
    hosts = tuple(host.name for host in parse_hosts(text, where=HOSTS))
    token_file = environment.get(TOKEN_FILE, "")
    if not token_file:
        raise UsageError("TFRUN-212", "it is not set", where=TOKEN_FILE)
    return PodGroup(
        hosts=hosts,
        index=_number(environment, INDEX, 0, len(hosts) - 1),
        port=_number(environment, PORT, 1, 65535),
        token_file=token_file,
        address=environment.get(ADDRESS, ""),
        slots=_number({SLOTS: "1", **environment}, SLOTS, 1, 65535),
    )


def health_port(environment: Mapping[str, str]) -> int:
    """Returns the port on which to say that this process lives; 0 for none.

    Raises:
      UsageError: TFRUN-212 when it is no port.
    """
    return _number(environment, HEALTH_PORT, 1, 65535) if environment.get(HEALTH_PORT) else 0


def _number(environment: Mapping[str, str], name: str, low: int, high: int) -> int:
    text = environment.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 7 and low <= int(text) <= high):
        raise UsageError(
            "TFRUN-212", f"{text!r:.60} is not right", where=name, expected=f"{low} to {high}"
        )
    return int(text)
