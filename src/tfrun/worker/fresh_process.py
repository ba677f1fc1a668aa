"""A worker as a fresh process, for systems on which forking after imports is not safe.

`python -m tfrun.worker.fresh_process FD PARENT_PID`: FD is the worker's channel; the task
comes as JSON on standard input.
"""

from __future__ import annotations

import json
import os
import sys

from tfrun.process import channel, lineage


def main() -> None:
    lineage.die_with_parent(int(sys.argv[2]))
    channel.open_channel(int(sys.argv[1]))
    task = json.load(sys.stdin)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    from tfrun.worker.bootstrap import live
    from tfrun.worker.preload import preload

    program = task["program"]
    preload(None if program["is_module"] else program["target"])
    live(task)


if __name__ == "__main__":
    main()
