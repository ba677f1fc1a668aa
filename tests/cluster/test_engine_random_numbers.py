"""Each replica draws random numbers of its own, and one worker draws Keras's."""

from __future__ import annotations

import itertools

import pytest
from workers import SCRIPTS, by_case, results_of

OWN = [
    "dropout",
    "in a condition",
    "keras.random with a generator",
    "keras.random",
    "tf.random",
    "tf.random with a seed",
    "in a loop",
    "augmented",
    "a generator",
    "a generator in the scope",
]
BY_BATCH = ["a generator by the batch"]
FOR_ALL = [
    "one of keras.random",
    "one of keras.random.gamma",
    "one of tf.random",
    "one of tf.random.normal",
    "one of a generator",
]
STATED = ["keras.random with a number", "tf.random.stateless"]


@pytest.mark.parametrize("workers", [2, 3])
def test_replicas_draw_other_numbers_than_each_other(workers: int) -> None:
    alone = results_of("engine_random_numbers.py", 1)[0]["drawn"]
    drawn = [worker["drawn"] for worker in results_of("engine_random_numbers.py", workers)]
    assert set(alone) == {*OWN, *BY_BATCH, *FOR_ALL, *STATED}
    for name in OWN:
        assert drawn[0][name] == alone[name], "replica 0 draws what one worker draws"
        for one, other in itertools.combinations([mine[name] for mine in drawn], 2):
            assert all(a != b for a, b in zip(one, other, strict=True)), name
        assert all(a != b for a, b in itertools.pairwise(drawn[-1][name])), name


@pytest.mark.parametrize("workers", [2, 3])
def test_a_generator_goes_on_by_the_whole_batch(workers: int) -> None:
    """Else those of workers with other numbers of samples would be in different states."""
    alone, *_ = results_of("engine_random_numbers.py", 1)
    drawn = results_of("engine_random_numbers.py", workers)
    assert [worker["generators"] for worker in drawn] == [alone["generators"]] * workers
    for name in BY_BATCH:
        first, *_ = steps = [worker["drawn"][name] for worker in drawn]
        assert first == [rows[: 12 // workers] for rows in alone["drawn"][name]]
        assert all(a != b for one in steps[1:] for a, b in zip(first, one, strict=True))


@pytest.mark.parametrize("workers", [2, 3])
def test_a_single_number_is_the_same_on_all(workers: int) -> None:
    """What a step draws once for its whole batch, one worker draws for all."""
    alone = results_of("engine_random_numbers.py", 1)[0]["drawn"]
    for mine in (worker["drawn"] for worker in results_of("engine_random_numbers.py", workers)):
        for name in FOR_ALL:
            assert mine[name] == alone[name], name
            assert len({str(number) for number in mine[name]}) == len(mine[name]), name


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_seed_that_the_script_states_is_the_same_everywhere(workers: int) -> None:
    drawn = [worker["drawn"] for worker in results_of("engine_random_numbers.py", workers)]
    for name in STATED:
        assert len({str(numbers) for mine in drawn for numbers in mine[name]}) == 1


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_seed_generators_hold_the_same_on_all_workers(workers: int) -> None:
    """So that a snapshot needs one of them, and one worker's are plain Keras's."""
    alone = results_of("engine_random_numbers.py", 1)[0]["states"]
    assert [worker["states"] for worker in results_of("engine_random_numbers.py", workers)] == [
        alone
    ] * workers


TOLD = {
    "Stateless": "from a seed that the script states",
    "Number": "from a seed that the script states",
    "Numpy": "by calling Python code",
    "Python": "by calling Python code",
}


@pytest.mark.timeout(120)
def test_the_same_noise_for_other_samples_is_told(jobs) -> None:
    done = jobs.run("-n", 2, SCRIPTS / "same_noise.py")
    assert done.returncode == 0, done.stderr
    shown = by_case(done.stderr)
    assert list(shown) == [*TOLD, "Generators", "ForAll", "NumpyForAll", "Unrandom", "end"]
    for case, text in shown.items():
        assert text.count("the step draws random numbers") == (case in TOLD), (case, done.stderr)
        assert TOLD.get(case, "") in text, (case, done.stderr)
