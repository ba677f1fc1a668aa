"""`fit` with `--steps-per-execution`: ms a step of a tiny model and of the small CNN."""

import sys

from harness import compare, record, tfrun

MODELS = {"tiny": (2,), "cnn": (2, 1)}
CHOICES = ("script", "auto")


def main(repeats: int = 3) -> None:
    for model, sizes in MODELS.items():
        contenders = {
            _name(workers, choice): lambda workers=workers, choice=choice, model=model: tfrun(
                workers, "executions.py", model, TFRUN_STEPS_PER_EXECUTION=choice
            )
            for workers in sizes
            for choice in CHOICES
        }
        results = compare(contenders, repeats)
        gains = {
            f"with_{workers}_workers": results[_name(workers, "script")]["median"]
            / results[_name(workers, "auto")]["median"]
            for workers in sizes
        }
        record(f"steps per execution, {model}", "ms a step", results, **gains)


def _name(workers: int, choice: str) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''}, {choice}"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
