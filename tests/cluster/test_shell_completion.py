"""What Tab does in a real bash, zsh and fish, with the lines that the documentation gives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Jobs
from docs_blocks import ROOT

SECONDS = 60
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
_CONTROLS = re.compile(r"\x1b\[[0-9;?>=]*[A-Za-z]|\x1b[()][0-9A-B]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)")


class Shell:
    """A shell on a terminal of its own."""

    def __init__(self, name: str, jobs: Jobs) -> None:
        self.screen = ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = {"HOME": str(jobs.directory), "XDG_CONFIG_HOME": str(jobs.directory / "config")}
        self._process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *SHELLS[name]],
            cwd=jobs.directory,
            env={**jobs.environment, **home, "PATH": path, "TERM": "xterm", "PS1": "$ "},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)

    def type(self, text: str) -> None:
        """Forgets what was shown, and types."""
        self.screen = ""
        os.write(self._master, text.encode())

    def until(self, wanted: str) -> None:
        """Waits until this is shown."""
        deadline = time.monotonic() + SECONDS
        while wanted not in _CONTROLS.sub("", self.screen):
            left = deadline - time.monotonic()
            if left < 0 or not select.select([self._master], [], [], left)[0]:
                pytest.fail(f"{wanted!r} is not shown, but {self.screen!r}")
            self.screen += os.read(self._master, 4096).decode(errors="replace")

    def close(self) -> None:
        """Ends the shell as a terminal that is closed does."""
        os.close(self._master)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait(10)


def documented(shell: str) -> str:
    """The line that the documentation has for this shell."""
    page = (ROOT / "docs/command-line.md").read_text()
    table = page.partition("## Shell completion")[2].partition("\n## ")[0]
    (line,) = re.findall(rf"^\| {shell} \| `[^`]+` \| `([^`]+)` \|$", table, re.M)
    return line.replace("\\|", "|")  # as a table writes it


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, jobs: Jobs) -> Iterator[Shell]:
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not here: its completion is NOT TESTED")
    found = Shell(request.param, jobs)
    try:
        # The words that are waited for are not those that are typed.
        found.type(f"{documented(request.param)}\necho REA''DY\n")
        found.until("READY")
        yield found
    finally:
        found.close()


def test_tab(shell: Shell, jobs: Jobs) -> None:
    jobs.script("", "my_script.py")
    runs = jobs.directory / "tfrun-runs" / "digits-7"
    runs.mkdir(parents=True)
    (runs / "job.json").write_text('{"started": 1.0}')
    for typed, shown in (
        ("tfrun par", "tfrun parity"),  # a verb
        ("tfrun --hang", "tfrun --hang-timeout"),  # an option
        ("tfrun --balance a", "tfrun --balance auto"),  # one of its values
        ("tfrun -n 2 my_", "tfrun -n 2 my_script.py"),  # a file
        ("tfrun tune --memory", "tfrun tune --memory-limit"),  # an option of a verb
        ("tfrun drill my_", "tfrun drill my_script.py"),
        ("tfrun --tls-cert my_", "tfrun --tls-cert my_script.py"),
        ("tfrun --run-dir tfrun-r", "tfrun --run-dir tfrun-runs"),
        ("tfrun status dig", "tfrun status digits-7"),  # a run
    ):
        shell.type(f"{typed}\t")
        shell.until(shown)
        shell.type("\x15")  # clears the line
