"""How processes that were started together find their launcher: by what they know, or a file.

Only the file's owner can read it, and it is gone when the job is: neither the arguments nor the
environment of any process ever have the token.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfrun.cluster.pods import TOKEN_FILE, PodGroup
from tfrun.cluster.slurm import SlurmStep
from tfrun.control.protocol import tls
from tfrun.job import files
from tfrun.job.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Found:
    """Where the launcher is, and what it wants to see.

    Attributes:
      url: its control port.
      token: the job's secret.
      certificate: the only one to trust there, in PEM; "" is without TLS.
    """

    url: str
    token: str
    certificate: str = ""

    @property
    def tls(self) -> dict[str, Any] | None:
        """As `protocol.tls.trusting` takes it."""
        return tls.only(self.certificate)


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """How the others of a group find the launcher.

    Attributes:
      file: where the launcher says where it is; None where all know it.
      host: this machine, as the others know it: what the launcher says of itself.
      why: what those that do not come may wait for, as one clause.
      known: where the launcher is, if all know it.
      port: the control port; 0 is any free one.
    """

    file: Path | None = None
    host: str = ""
    why: str = ""
    known: Found | None = None
    port: int = 0

    def announce(self, port: int, token: str, certificate: str = "") -> None:
        """Says where the launcher is, and its certificate in PEM; OSError when it cannot."""
        if self.file:
            url = f"{'https' if certificate else 'http'}://{self.host}:{port}"
            found = Found(url=url, token=token, certificate=certificate)
            files.write_private(self.file, json.dumps(asdict(found)))

    def find(self) -> Found | None:
        """Returns where the launcher is; None when it is not there yet."""
        if self.file is None:
            return self.known
        with contextlib.suppress(OSError):
            os.listdir(self.file.parent)  # noqa: PTH208 (has NFS look again)
        try:
            fd = os.open(self.file, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        with os.fdopen(fd) as file:
            if os.fstat(fd).st_uid != os.getuid():
                return None  # somebody else's: he would get to say what we run
            return Found(**json.load(file))

    def close(self) -> None:
        """Takes back what `announce` has left."""
        if self.file:
            self.file.unlink(missing_ok=True)


def of_step(step: SlurmStep, run_dir: Path) -> Discovery:
    """Returns how the tasks of `srun tfrun` find the first one: by a file that all have to see."""
    file = run_dir / f".slurm-{step.job}.{step.step}.{step.restarts}.json"
    why = f"its task has not come, or does not see {run_dir}"
    return Discovery(file=file, host=step.here, why=why)


def of_pods(group: PodGroup, certificate: tls.Certificate | None) -> Discovery:
    """Returns how pods find the first one: it is where their environment says.

    Args:
      group: this process's group.
      certificate: what the launcher shows, which all have; None is without TLS.

    Raises:
      UsageError: TFRUN-212 when there is no secret.
    """
    problem = "is empty"
    try:
        token = Path(group.token_file).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        token, problem = "", f"cannot be read: {error}"
    if not token:
        raise UsageError("TFRUN-212", f"{group.token_file!r:.200} {problem}", where=TOKEN_FILE)
    url = f"{'https' if certificate else 'http'}://{group.hosts[0]}:{group.port}"
    known = Found(url=url, token=token, certificate=tls.pem_of(certificate))
    return Discovery(why="it has not connected yet", known=known, port=group.port)
