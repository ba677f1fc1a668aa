"""100 MB of gradients in 160 tensors, 2 workers: our ring settings against TensorFlow's. >= 2."""

from harness import by_hand, compare, record, tfrun


def main(repeats: int = 5) -> None:
    results = compare(
        {
            "tfrun, ring": lambda: tfrun(2, "all_reduce.py"),
            "TensorFlow, ring, default": lambda: by_hand(2, "all_reduce.py"),
        },
        repeats,
    )
    ours, theirs = (numbers["median"] for numbers in results.values())
    record("100 MB in 160 tensors", "ms", results, faster_than_default_ring=theirs / ours)


if __name__ == "__main__":
    main()
