"""`fit` of the seed CNN, 2 workers, against legacy Keras. Goal: 16 ms over TCP, 14 in memory."""

import sys

from harness import apart, by_hand, compare, legacy_python, record, tfrun


def main(repeats: int = 5) -> None:
    legacy = legacy_python()
    results = compare(
        {
            "fit, Keras 3, tfrun, host, shared memory": lambda: tfrun(
                2, "seed_cnn.py", "keras3", TFRUN_COMMUNICATION="host"
            ),
            "fit, Keras 3, tfrun, host, TCP": lambda: tfrun(
                2, "seed_cnn.py", "keras3", TFRUN_COMMUNICATION="host", TFRUN_SHARED_MEMORY="0"
            ),
            "fit, Keras 3, tfrun, ring": lambda: tfrun(
                2, "seed_cnn.py", "keras3", TFRUN_COMMUNICATION="ring"
            ),
            "fit, legacy Keras, TensorFlow's MWMS": lambda: by_hand(
                2, "seed_cnn.py", "legacy", python=legacy
            ),
            "two workers of two jobs, Keras 3": lambda: apart(2, "seed_cnn.py", "keras3"),
            "one worker alone, Keras 3": lambda: tfrun(1, "seed_cnn.py", "keras3"),
        },
        repeats,
    )
    memory, tcp, ring, theirs, jobs, alone = (numbers["median"] for numbers in results.values())
    record(
        "seed CNN",
        "ms a step",
        results,
        ring_over_legacy=theirs / ring,
        host_tcp_over_legacy=theirs / tcp,
        host_memory_over_legacy=theirs / memory,
        one_worker_over_host_memory=alone / memory,
        one_worker_over_host_tcp=alone / tcp,
        two_jobs_over_host_memory=jobs / memory,
        two_jobs_over_host_tcp=jobs / tcp,
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
