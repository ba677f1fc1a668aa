"""Time to the first step, 2 workers: tfrun against processes started by hand. Goal: <= 1.3."""

from harness import by_hand, compare, record, tfrun


def main(repeats: int = 7) -> None:
    results = compare(
        {
            "tfrun -n 2": lambda: tfrun(2, "first_step.py"),
            "two processes, TF_CONFIG by hand": lambda: by_hand(2, "first_step.py"),
        },
        repeats,
    )
    ours, theirs = (numbers["median"] for numbers in results.values())
    record("start to first step", "s", results, tfrun_over_by_hand=ours / theirs)


if __name__ == "__main__":
    main()
