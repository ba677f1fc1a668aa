"""What runs before TensorFlow's import begins, which is what everybody waits for at a start."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Says which packages have been imported, and ends, where the process starts its first child.
TOLD = """
import os, sys
before = set(sys.modules)
def hook(event, args):
    if event == "subprocess.Popen":
        packages = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(*sorted(packages - sys.stdlib_module_names | packages & {"asyncio"}), flush=True)
        os._exit(7)
sys.addaudithook(hook)
"""
LAUNCHER = "from tfrun.cli.main import main\nmain(sys.argv[1:])\n"
AGENT = "from tfrun.agent.start import main\nmain()\n"


@pytest.mark.parametrize(("who", "packages"), [("launcher", "click tfrun"), ("agent", "tfrun")])
def test_nothing_that_takes_long_is_imported_before(
    who: str, packages: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("")
    if who == "launcher":
        code, args = LAUNCHER, ["-n", "2", "--run-dir", "run", "train.py"]
    else:
        told = {"log": str(tmp_path / "log"), "script": "train.py", "variables": {}}
        code, args = AGENT, [json.dumps(told)]
    command = [sys.executable, "-c", TOLD + code, *args]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 7, done.stderr
    assert done.stdout.strip() == packages
