"""Runs callback scripts one after the other, each with a folder and a result of its own."""

import json
import os
import runpy
from pathlib import Path

import callbacks_common

out, folder = Path(os.environ["TFRUN_TEST_OUT"]), callbacks_common.FOLDER
found = {}
for name in os.environ["TEST_SCRIPTS"].split():
    callbacks_common.FOLDER = folder / name
    callbacks_common.FOLDER.mkdir(exist_ok=True)
    runpy.run_path(str(Path(__file__).with_name(f"callbacks_{name}.py")), run_name="__main__")
    found[name] = json.loads(out.read_text())
out.write_text(json.dumps(found))
