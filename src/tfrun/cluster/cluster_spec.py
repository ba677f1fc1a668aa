"""A cluster's roles, tasks and their addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tfrun.cluster.address import Address

TRAINERS = ("chief", "worker")  # in the order of their ranks
ROLES = (*TRAINERS, "ps", "evaluator")
# What TensorFlow 1 called the chief; TensorFlow 2 refuses the word, Google Cloud still sends it.
LEGACY_CHIEF = "master"


@dataclass(frozen=True, kw_only=True)
class TaskKey:
    """The name of one task: its role ("chief", "worker", "ps", "evaluator") and its index."""

    type: str
    index: int

    def __str__(self) -> str:
        return f"{self.type}[{self.index}]"


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """The addresses of all tasks, by role.

    Attributes:
      roles: (role, addresses in the order of the indices) for each role that has tasks, in the
        order in which they were given. Empty when there is no cluster: one process alone.
    """

    roles: tuple[tuple[str, tuple[Address, ...]], ...] = ()

    @classmethod
    def of(cls, addresses: Mapping[str, Sequence[Address]]) -> ClusterSpec:
        """Makes a cluster of {role: addresses in the order of the indices}."""
        return cls(roles=tuple((role, tuple(tasks)) for role, tasks in addresses.items() if tasks))

    def __bool__(self) -> bool:
        return bool(self.roles)

    def __contains__(self, task: TaskKey) -> bool:
        return 0 <= task.index < self.count(task.type)

    def addresses(self, role: str) -> tuple[Address, ...]:
        return dict(self.roles).get(role, ())

    def address(self, task: TaskKey) -> Address:
        return self.addresses(task.type)[task.index]

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        """{role: ["host:port", …]}; made once for the thousand tasks that are told of it."""
        return {role: [str(address) for address in tasks] for role, tasks in self.roles}

    def count(self, role: str) -> int:
        return len(self.addresses(role))

    @property
    def trainers(self) -> int:
        """The number of training tasks: chief and workers."""
        return self.count("chief") + self.count("worker")

    def tasks(self) -> Iterator[TaskKey]:
        for role, addresses in self.roles:
            for index in range(len(addresses)):
                yield TaskKey(type=role, index=index)
