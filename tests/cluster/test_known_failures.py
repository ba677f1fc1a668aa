"""What TensorFlow and Keras say of failures that many have had is recognized."""

from __future__ import annotations

import pytest
from workers import results_of

from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure
from tfrun.job.reports import Error
from tfrun.observe.known_failures import advice

EXPECTED = {
    "weights_of_another_model": "shapes after a resume",
    "checkpoint_of_another_model": "shapes after a resume",
    "labels": "labels outside of the classes",
    "data_of_another_shape": "shapes",
    "shapes_in_a_graph": "shapes",
    "array": "host memory, refused",
    "port": "port in use",
    "full_disk_for_weights": "disk full",
    "full_disk_for_records": "disk full",
    "no_file": "file missing",
    "no_weights": "file missing",
    "damaged_file": "damaged file",
    "no_number": "not a number",
    "too_many_files": "too many open files",
}


@pytest.mark.parametrize("case", EXPECTED)
def test_it_is_known(case: str) -> None:
    (found,) = results_of("known_failures.py", 1)
    assert case in found, "nothing was raised"
    error = Error(**found[case])
    failure = Failure(task="worker:0", time=1.0, status=ExitStatus(code=1), error=error)
    known = advice(failure)
    assert known is not None, found[case]
    assert known.name == EXPECTED[case], found[case]
