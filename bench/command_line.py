"""`tfrun --help` and `tfrun --version`: seconds. Goal: under 0.2, without TensorFlow."""

import subprocess
import sys
import time
from pathlib import Path

from harness import compare, record

TFRUN = str(Path(sys.executable).with_name("tfrun"))


def timed(option: str) -> list[float]:
    start = time.perf_counter()
    subprocess.run([TFRUN, option], check=True, stdout=subprocess.DEVNULL)
    return [time.perf_counter() - start]


def main() -> None:
    results = compare({f"tfrun {o}": lambda o=o: timed(o) for o in ("--help", "--version")}, 11)
    record("command line", "s", results)


if __name__ == "__main__":
    main()
