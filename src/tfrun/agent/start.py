"""Starts an agent's process: TensorFlow's import begins before the agent's own imports.

`main` of a process with the argument ZYGOTE, in JSON: "log", "script" and "variables", what the
workers' environment has besides the process's own; or null when the workers will be no forks.
"""

from __future__ import annotations

import json
import os
import sys

from tfrun.agent.zygote_process import start_zygote


def main() -> None:
    """Starts the zygote, then imports and runs the agent."""
    wanted = json.loads(sys.argv[1])
    zygote = None
    if wanted:
        environment = {**os.environ, **wanted["variables"]}
        zygote = start_zygote(environment, wanted["log"], wanted["script"])
    try:
        from tfrun.agent import agent

        agent.main(zygote=zygote)
    finally:
        if zygote:
            zygote.kill()  # the launcher may have gone before it has said anything


if __name__ == "__main__":
    main()
