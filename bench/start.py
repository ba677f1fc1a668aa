"""Time to the first step, 2 workers: tfrun against processes started by hand. Goal: <= 0.8.

Once as it is, and once as where neither matplotlib nor scikit-learn is installed: Keras imports
both, and tfrun puts that off.
"""

import os
import sys

from harness import SCRIPTS, by_hand, compare, record, tfrun

WAYS = {
    "start to first step": {},
    "start to first step, without matplotlib and scikit-learn": {
        "PYTHONPATH": os.pathsep.join(
            filter(None, (str(SCRIPTS / "bare"), os.environ.get("PYTHONPATH")))
        )
    },
}


def main(repeats: int = 7) -> None:
    for name, variables in WAYS.items():
        results = compare(
            {
                "tfrun -n 2": lambda more=variables: tfrun(2, "first_step.py", **more),
                "two processes, TF_CONFIG by hand": lambda more=variables: by_hand(
                    2, "first_step.py", **more
                ),
            },
            repeats,
        )
        ours, theirs = (numbers["median"] for numbers in results.values())
        record(name, "s", results, tfrun_over_by_hand=ours / theirs)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
