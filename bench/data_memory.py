"""Memory that an array dataset of 1 GB takes with 4 workers on one machine: goal, one copy."""

from __future__ import annotations

from harness import compare, record, tfrun

WORKERS = 4
NONE = f"no data, {WORKERS} workers"


def main(repeats: int = 1) -> None:
    results = compare(
        {
            NONE: lambda: tfrun(WORKERS, "data_memory.py", "none"),
            "1 GB, tfrun.Dataset.from_arrays": lambda: tfrun(WORKERS, "data_memory.py", "shared"),
            "1 GB, tf.data, from_tensor_slices": lambda: tfrun(WORKERS, "data_memory.py", "copied"),
        },
        repeats,
    )
    without, shared, copied = (numbers["median"] for numbers in results.values())
    record(
        "memory of 1 GB of arrays",
        "GB in all processes",
        results,
        copies_with_tfrun_Dataset=shared - without,
        copies_with_tf_data=copied - without,
    )


if __name__ == "__main__":
    main()
