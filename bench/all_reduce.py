"""100 MB of gradients in 160 tensors, 2 workers: tfrun's collectives against TensorFlow's ring."""

import sys

from harness import by_hand, compare, record, tfrun


def main(repeats: int = 5) -> None:
    results = compare(
        {
            "tfrun, host, shared memory": lambda: tfrun(
                2, "all_reduce.py", TFRUN_COMMUNICATION="host"
            ),
            "tfrun, host, TCP": lambda: tfrun(
                2, "all_reduce.py", TFRUN_COMMUNICATION="host", TFRUN_SHARED_MEMORY="0"
            ),
            "tfrun, ring": lambda: tfrun(2, "all_reduce.py", TFRUN_COMMUNICATION="ring"),
            "TensorFlow, ring, default": lambda: by_hand(2, "all_reduce.py"),
            "the same step without it": lambda: tfrun(2, "all_reduce.py", "alone"),
        },
        repeats,
    )
    memory, tcp, ring, theirs, alone = (numbers["median"] for numbers in results.values())
    record(
        "100 MB in 160 tensors",
        "ms",
        results,
        host_memory_less_the_step=memory - alone,
        host_tcp_less_the_step=tcp - alone,
        ring_over_default_ring=theirs / ring,
        host_tcp_over_default_ring=theirs / tcp,
        host_memory_over_default_ring=theirs / memory,
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
