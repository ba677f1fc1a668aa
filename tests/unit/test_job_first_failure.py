"""Which failure was the first cause."""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import PEER_ERRORS, PEER_PHRASES, Failure, root_cause
from tfrun.job.reports import Error


def failure(task: str, time: float, kind: str = "", message: str = "") -> Failure:
    error = Error(type=kind, message=message) if kind else None
    return Failure(task=task, time=time, status=ExitStatus(code=1), error=error)


def test_no_failure_has_no_cause() -> None:
    assert root_cause([]) is None


def test_a_peers_error_never_hides_the_cause_even_when_it_comes_first() -> None:
    followers = [
        failure("worker:1", 1.0, "UnavailableError"),
        failure("worker:2", 2.0, "AbortedError"),
    ]
    own = failure("worker:0", 3.0, "ValueError")
    for order in itertools.permutations([*followers, own]):
        assert root_cause(order) is own


def test_the_earliest_own_failure_wins() -> None:
    early, late = failure("worker:1", 1.0, "KeyError"), failure("worker:0", 2.0, "ValueError")
    assert root_cause([late, early]) is early


def test_with_peer_errors_only_the_earliest_wins() -> None:
    early, late = (
        failure("worker:1", 1.0, "UnavailableError"),
        failure("worker:0", 2.0, "AbortedError"),
    )
    assert root_cause([late, early]) is early


def test_an_end_without_an_exception_is_its_own_cause() -> None:
    killed = Failure(task="worker:1", time=5.0, status=ExitStatus(code=-9))
    assert root_cause([failure("worker:0", 1.0, "UnavailableError"), killed]) is killed


@pytest.mark.parametrize("phrase", PEER_PHRASES)
def test_an_internal_error_about_a_peer_follows(phrase: str) -> None:
    assert failure("worker:0", 1.0, "InternalError", f"x {phrase} y").follows_from_a_peer
    assert not failure("worker:0", 1.0, "ValueError", f"x {phrase} y").follows_from_a_peer


def test_another_internal_error_is_the_tasks_own() -> None:
    own = failure("worker:0", 1.0, "InternalError", "cuDNN launch failure : input shape")
    assert not own.follows_from_a_peer


def test_the_names_are_those_of_tensorflows_classes() -> None:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        pytest.skip("TensorFlow is not installed")
    # The source, because importing TensorFlow takes seconds.
    python = Path(spec.origin).parent / "python"
    sources = ("framework/errors_impl.py", "distribute/coordinator/cluster_coordinator.py")
    text = "\n".join((python / source).read_text() for source in sources)
    classes = set(re.findall(r"^class (\w+)\(", text, flags=re.MULTILINE))
    assert classes >= PEER_ERRORS
    assert "InternalError" in classes


FAILURES = st.builds(
    failure,
    task=st.sampled_from(["worker:0", "worker:1", "worker:2"]),
    time=st.floats(0, 100),
    kind=st.sampled_from(["", "ValueError", "InternalError", *sorted(PEER_ERRORS)]),
    message=st.sampled_from(["", "Socket closed", "out of range"]),
)


@given(st.lists(FAILURES, min_size=1))
def test_the_cause_is_the_earliest_of_the_best(failures: list[Failure]) -> None:
    cause = root_cause(failures)
    assert cause in failures
    own = [f for f in failures if not f.follows_from_a_peer]
    assert cause in (own or failures)
    assert cause.time == min(f.time for f in own or failures)
