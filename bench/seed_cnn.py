"""`fit` of the seed CNN, 2 workers: Keras 3 under tfrun against legacy Keras. Goal: >= 1.25."""

from harness import by_hand, compare, legacy_python, record, tfrun


def main(repeats: int = 5) -> None:
    legacy = legacy_python()
    results = compare(
        {
            "fit, Keras 3, tfrun": lambda: tfrun(2, "seed_cnn.py", "keras3"),
            "fit, legacy Keras, TensorFlow's MWMS": lambda: by_hand(
                2, "seed_cnn.py", "legacy", python=legacy
            ),
            "one worker alone, Keras 3": lambda: tfrun(1, "seed_cnn.py", "keras3"),
        },
        repeats,
    )
    ours, theirs, _ = (numbers["median"] for numbers in results.values())
    record("seed CNN", "ms a step", results, steps_per_second_over_legacy=theirs / ours)


if __name__ == "__main__":
    main()
