"""A script runs as `__main__`, and ends as the interpreter would have it end."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tfrun.job.errors import TfrunError
from tfrun.job.reports import Error
from tfrun.worker.script import describe, exit_code, trim

# What `bootstrap.live` does, under its name: its frames are cut off from tracebacks.
LIVE = """
error = None
try:
    script.run(Program(**json.loads(sys.argv[1])))
except BaseException as raised:
    error = raised
code = script.exit_code(error)
sys.stdout.flush()
os._exit(code)
"""
RUN = f"""
import json, os, sys
from tfrun.job.spec import Program
from tfrun.worker import script
exec(compile({LIVE!r}, os.path.join(os.path.dirname(script.__file__), "bootstrap.py"), "exec"))
"""
PROBE = """
import json, os, pickle, sys
class Here: pass
import neighbour
print(json.dumps({
    "name": __name__, "file": __file__, "argv": sys.argv, "path": sys.path[0],
    "pickles": pickle.loads(pickle.dumps(Here())).__class__ is Here,
    "main": sys.modules["__main__"].Here is Here, "neighbour": neighbour.name,
    "doc": __doc__,
}))
"""


def python(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def ours(directory: Path, target: str, *args: str, is_module: bool = False):
    program = json.dumps({"target": target, "args": args, "is_module": is_module})
    return python(directory, "-c", RUN, program)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    for directory in (tmp_path, tmp_path / "package"):
        (directory / "train.py").write_text(PROBE)
        (directory / "neighbour.py").write_text(f"name = {directory.name!r}")
    return tmp_path


@pytest.mark.parametrize("target", ["train.py", "package/train.py", "./train.py"])
def test_a_file_runs_as_under_plain_python(here: Path, target: str) -> None:
    by_python = python(here, target, "--epochs", "3", "-n")
    by_us = ours(here, target, "--epochs", "3", "-n")
    assert by_us.returncode == by_python.returncode == 0, by_us.stderr
    assert json.loads(by_us.stdout) == json.loads(by_python.stdout)


def test_a_linked_script_finds_the_neighbours_of_its_file(here: Path) -> None:
    (here / "link.py").symlink_to(here / "package" / "train.py")
    assert json.loads(ours(here, "link.py").stdout)["neighbour"] == "package"


def test_a_module_runs_as_under_python_m(here: Path) -> None:
    by_python = python(here, "-m", "package.train", "a")
    by_us = ours(here, "package.train", "a", is_module=True)
    assert by_us.returncode == by_python.returncode == 0, by_us.stderr
    assert json.loads(by_us.stdout) == json.loads(by_python.stdout)


ENDS = {
    "nothing": "",
    "zero": "import sys; sys.exit(0)",
    "none": "import sys; sys.exit()",
    "seven": "import sys; sys.exit(7)",
    "256": "import sys; sys.exit(256)",
    "minus one": "import sys; sys.exit(-1)",
    "true": "import sys; sys.exit(True)",
    "message": "import sys; sys.exit('no data')",
    "exception": "def f():\n    raise ValueError('boom')\nf()",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "group": "assert 0, 'é ✓'",
    "syntax": "def f(:\n    pass",
    "indentation": "if 1:\nx",
    "bytes": "x = '\xff'",
    "import": "import nowhere_to_be_found",
    "hook": "import sys\nsys.excepthook = lambda *a: print('hooked', a[0])\n1 / 0",
}


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_ends_say_and_return_what_python_does(tmp_path: Path, code: str) -> None:
    (tmp_path / "train.py").write_bytes(code.encode("latin-1" if "\xff" in code else "utf-8"))
    by_python = python(tmp_path, "train.py")
    by_us = ours(tmp_path, "train.py")
    assert (by_us.returncode, by_us.stdout) == (by_python.returncode, by_python.stdout)
    if "unicode error" not in by_us.stderr:  # Python itself has two messages for that
        assert by_us.stderr.splitlines()[-1:] == by_python.stderr.splitlines()[-1:]
    assert "tfrun" not in by_us.stderr
    assert "runpy" not in by_us.stderr


def test_an_exceptions_traceback_is_the_one_of_plain_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENDS["exception"])
    assert ours(tmp_path, "train.py").stderr == python(tmp_path, "train.py").stderr


def test_a_failing_modules_traceback_starts_in_the_module(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENDS["exception"])
    error = ours(tmp_path, "train", is_module=True).stderr
    assert error.splitlines()[1].startswith(f'  File "{tmp_path}/train.py", line 3')


def caught(function, *args) -> BaseException:
    with pytest.raises(BaseException) as info:
        function(*args)
    return info.value


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    raise ValueError("x" * 10_000)


def test_a_description_is_bounded() -> None:
    error = caught(deep, 400)
    described = describe(error)
    assert described.type == "ValueError"
    assert len(described.message) == 4096
    assert len(described.traceback) <= 16384
    assert described.traceback.endswith("x\n")
    text = describe(caught(deep_chain, 400)).traceback
    assert len(text) == 16384
    assert text.endswith("ValueError: 399\n")


@pytest.mark.parametrize("code", [3, "no data", None, 1.5])
def test_the_description_of_an_exit(code: object) -> None:
    described = describe(SystemExit(code))
    assert described.type == "SystemExit"
    assert described.message == str(code)


def deep_chain(levels: int) -> None:
    error: Exception | None = None
    for level in range(levels):
        try:
            raise ValueError(level) from error
        except ValueError as raised:
            error = raised
    assert error is not None
    raise error


def test_what_belongs_to_an_exception_is_described_too() -> None:
    def group() -> None:
        raise vars(builtins)["ExceptionGroup"]("two", [ValueError("a"), OSError(2, "gone", "f")])

    def chained() -> None:
        try:
            raise KeyError("k")
        except KeyError as error:
            raise ValueError("no\nsecond line") from error

    def handling() -> None:
        try:
            raise KeyError("k")
        except KeyError:
            raise AssertionError  # noqa: B904

    def coded() -> None:
        raise TfrunError("TFRUN-506", "the optimizer stands outside")

    assert describe(caught(chained)).cause == "KeyError: 'k'"
    described = describe(caught(handling))
    assert described.context == "KeyError: 'k'"
    assert described.line == "raise AssertionError  # noqa: B904"
    assert describe(caught(coded)).code == "TFRUN-506"
    if sys.version_info >= (3, 11):
        assert describe(caught(group)).exceptions == [
            "ValueError: a",
            "FileNotFoundError: [Errno 2] gone: 'f'",
        ]
        error = ValueError("bad")
        error.add_note("while reading a.csv")
        assert describe(error) == Error(
            type="ValueError",
            message="bad",
            traceback="ValueError: bad\nwhile reading a.csv\n",
            notes=["while reading a.csv"],
        )


def test_of_a_long_message_both_ends_are_described() -> None:
    """TensorFlow's begin with all the calls that have made a node."""
    message = describe(ValueError("begin" + "x" * 10_000 + "PeerGone: end")).message
    assert message.startswith("begin") and message.endswith("PeerGone: end")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_exception_that_cannot_be_printed_is_described_all_the_same() -> None:
    """As Python does: "<exception str() failed>"."""
    described = describe(Unprintable())
    assert described.type == "Unprintable"
    assert "str() failed" in described.message


def test_interrupts_and_exceptions_have_codes_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code(None) == 0
    assert exit_code(KeyboardInterrupt()) == 130
    assert exit_code(ValueError("boom")) == 1
    assert "ValueError: boom" in capsys.readouterr().err


def test_trimming_keeps_the_frames_of_others() -> None:
    error = caught(deep, 2)
    before = error.__traceback__
    trim(error)
    assert error.__traceback__ is before
