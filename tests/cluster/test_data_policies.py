"""Plain tf.data pipelines on two workers: who gets what, as TensorFlow documents its policies.

https://www.tensorflow.org/api_docs/python/tf/data/experimental/AutoShardPolicy
"""

from __future__ import annotations

import pytest
from workers import SCRIPTS, results_of

SCRIPT = SCRIPTS / "data_policies.py"
EVERY = list(range(16))


def of(name: str) -> list:
    return [found[name] for found in results_of("data_policies.py", 2, timeout=120)]


@pytest.mark.parametrize("policy", ["FILE", "AUTO"])
def test_whole_files_where_there_are_enough(policy: str) -> None:
    one, other = of(policy)
    assert sorted(one + other) == EVERY
    assert not {value // 4 for value in one} & {value // 4 for value in other}


@pytest.mark.parametrize("name", ["DATA", "AUTO, no files"])
def test_each_its_part_of_the_elements(name: str) -> None:
    one, other = of(name)
    assert sorted(one + other) == EVERY
    assert len(one) == len(other)


def test_one_file_can_be_divided_by_its_elements() -> None:
    one, other = of("DATA, 1 file")
    assert sorted(one + other) == EVERY[:4]


def test_everything_for_everybody() -> None:
    assert of("OFF") == [EVERY, EVERY]


@pytest.mark.parametrize("policy", ["FILE", "AUTO"])
def test_too_few_files_are_a_coded_error(jobs, policy: str) -> None:
    out = str(jobs.directory / "out.json")
    done = jobs.run("-n", 2, SCRIPT, env={"FIT": policy, "TFRUN_TEST_OUT": out})
    assert done.returncode == 1
    shown = " ".join(done.stderr.replace("│", " ").split())
    assert "TFRUN-612: the pipeline reads fewer files than there are workers" in shown
    assert "tfrun.Dataset.from_tfrecords" in shown
