"""What watching costs a step: clocks in the graph, and a report each second. Goal: under 1 %."""

import statistics

from harness import numbers, record, tfrun

ROUNDS = 40


def main() -> None:
    results, ratios = {}, {}
    for name, kind, steps in (("small dense model", "small", 60), ("seed CNN", "cnn", 24)):
        times = tfrun(2, "watching.py", kind, str(steps), str(ROUNDS))
        plain, watched = times[:ROUNDS], times[ROUNDS:]
        results[f"{name}, not watched"] = numbers(plain)
        results[f"{name}, watched"] = numbers(watched)
        # Neighbours in time are compared: the machine changes its pace.
        each = [100 * (b - a) / a for a, b in zip(plain, watched, strict=True)]
        spread = statistics.stdev(each) / len(each) ** 0.5
        ratios[f"{kind}_cost_percent"] = statistics.median(each)
        ratios[f"{kind}_standard_error_percent"] = spread
    record("watching", "ms a step", results, **ratios)


if __name__ == "__main__":
    main()
