"""Explains why an ssh command has ended, and whether to try again, from its output. Pure.

The texts are OpenSSH's own (sshconnect.c, clientloop.c, readconf.c), which are not translated, and
the shells' for a command that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfrun.launcher.waiting import Reason

SSH_FAILED = 255  # ssh's own exit code for its own failures
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # the shells'


# (what ssh says, what a person is told, permanent); the first line of the table that fits counts.
_SSH: tuple[tuple[str, str, bool], ...] = (
    (r"Host key verification failed", "its SSH host key is unknown or has changed", True),
    (r"Permission denied \(", "permission denied by its SSH server", True),
    (r"Too many authentication failures", "permission denied by its SSH server", True),
    (r"[Bb]ad configuration option|no argument after keyword", "ssh's configuration is bad", True),
    (r"remote port forwarding failed", "its SSH server forbids port forwarding", True),
    (r"Could not resolve hostname", "its name does not resolve", False),
    (r"Connection refused", "connection refused: no SSH server listens there", False),
    (r"timed out", "no answer: it is down, or a firewall drops the packets", False),
    (r"No route to host|Network is unreachable", "no route to it", False),
    (r"Timeout, server \S+ not responding", "the connection went silent", False),
    (r"[Cc]onnection (reset|closed|aborted)|Broken pipe", "the connection was closed", False),
)
_SSH_CODE = "TFRUN-304"
_HOST_CODE = "TFRUN-305"


def why_ssh_ended(code: int, tail: Sequence[str], python: str = "python") -> Reason:
    """Reads the end of an ssh command.

    Args:
      code: its exit code, or -N for signal N.
      tail: the last lines of its standard error.
      python: the remote Python that it was to run.
    """
    said = tail[-1].strip() if tail else ""
    if code == SSH_FAILED:
        for pattern, text, permanent in _SSH:
            for line in tail:
                if re.search(pattern, line):
                    quoted = f"{text} ({line.strip():.200})"
                    return Reason(text=quoted, permanent=permanent, code=_SSH_CODE)
        return Reason(text=f"ssh failed: {said:.200}" if said else "ssh failed")
    if code in (NOT_FOUND, NOT_EXECUTABLE):
        return Reason(
            text=f"{python} cannot be run there, see --remote-python ({said:.200})",
            permanent=True,
            code=_HOST_CODE,
        )
    missing = re.search(r"No module named '([^']+)'", "\n".join(tail))
    if missing:
        text = f"{python} there has a broken or another tfrun: no module {missing.group(1)}"
        if missing.group(1) == "tfrun":
            text = f"tfrun is not installed for {python} there"
        return Reason(text=text, permanent=True, code=_HOST_CODE)
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return Reason(text=f"{how}: {said:.200}" if said else how, permanent=True)
