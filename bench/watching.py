"""What watching costs a step: clocks in the graph, and a report each second. Goal: under 1 %."""

import statistics

from harness import numbers, record, tfrun

ROUNDS = 16


def main() -> None:
    results, ratios = {}, {}
    for name, kind, steps in (("small dense model", "small", 150), ("seed CNN", "cnn", 50)):
        found = tfrun(2, "watching.py", kind, str(steps), str(ROUNDS))
        _, plain_share, watched_share, meter, clocks, looks = found[:6]
        elapsed, cpu = found[6::2], found[7::2]
        arms = {"not watched": slice(None, ROUNDS), "watched": slice(ROUNDS, None)}
        for arm, which in arms.items():
            results[f"{name}, {arm}"] = numbers(elapsed[which])
            results[f"{name}, {arm}, CPU time of a worker"] = numbers(cpu[which])
        step = statistics.median(elapsed[ROUNDS:]) / 1000
        ratios[f"{name}:_the_meter's_calls,_%_of_a_step"] = 100 * meter / step
        ratios[f"{name}:_the_clocks_in_the_graph,_%_of_a_step"] = 100 * clocks / step
        ratios[f"{name}:_the_looks_at_connections,_%_of_a_step"] = 100 * looks / step
        ratios[f"{name}:_together,_%_of_a_step"] = 100 * (meter + clocks + looks) / step
        # Neighbours in time are compared: the machine changes its pace.
        pairs = zip(elapsed[:ROUNDS], elapsed[ROUNDS:], strict=True)
        each = [100 * (b - a) / a for a, b in pairs]
        ratios[f"{name}:_elapsed,_%"] = statistics.median(each)
        spread = statistics.stdev(each) / len(each) ** 0.5
        ratios[f"{name}:_standard_error_of_that,_%"] = spread
        ratios[f"{name}:_launcher_and_agent_watching,_%_of_a_core"] = 100 * watched_share
        ratios[f"{name}:_launcher_and_agent_else,_%_of_a_core"] = 100 * plain_share
    record("watching", "ms a step", results, **ratios)


if __name__ == "__main__":
    main()
