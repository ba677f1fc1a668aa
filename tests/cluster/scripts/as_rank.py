"""Gives each worker of a job its own result file, then runs the script that its arguments name."""

import os
import runpy
import sys
from pathlib import Path

os.environ["TFRUN_TEST_OUT"] = str(Path(sys.argv[1], f"{os.environ['RANK']}.json"))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
