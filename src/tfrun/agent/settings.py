"""What an agent is told before all else: one line of JSON, by its standard input.

Others can read the arguments and the environment of a process, and would have the job's token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfrun.job.errors import TfrunError
from tfrun.job.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """What an agent is told; the launcher knows the job, its backend the rest.

    Attributes:
      spec: the job.
      token: the job's secret.
      agent: the agent's name.
      workers: how many workers its machine takes.
      url: the control port.
      tls: as `protocol.tls.trusting` takes it; None is without TLS.
      silence: for how many seconds the controller may say nothing; None where no network breaks.
      attempt: how often an agent of this name was started before.
      directory: the working directory to enter; "" stays.
      copy_bytes: the size of its copy, which follows the line; 0 is none.
      environment: variables that the workers get from the launcher's side.
      agents: workers by agent, where `srun` tells all nodes the same; each finds itself there.
      discovery: the file that has token, url and tls, where `srun` must not pass them on.
    """

    spec: JobSpec
    token: str = ""
    agent: str = ""
    workers: int = 0
    url: str = ""
    tls: dict[str, Any] | None = None
    silence: float | None = None
    attempt: int = 0
    directory: str = ""
    copy_bytes: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    agents: Mapping[str, int] = field(default_factory=dict)
    discovery: str = ""

    def to_line(self) -> bytes:
        """Returns the line; it says nothing of what is not stated."""
        stated = {name: value for name, value in asdict(self).items() if value}
        return json.dumps(stated).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> AgentSettings:
        """The inverse of `to_line`.

        Raises:
          TfrunError: TFRUN-302 when it is something else.
        """
        try:
            values = json.loads(line)
            return cls(**{**values, "spec": JobSpec.from_json(values["spec"])})
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            what = f"these are no settings of an agent: {type(error).__name__}: {error}"
            raise TfrunError("TFRUN-302", what) from None
