"""A worker that waits in vain: found in what TensorFlow makes of it, and not a peer's end."""

from __future__ import annotations

import pytest

from tfrun.job import unmatched_call
from tfrun.job.first_failure import is_peer_error

REASON = "worker 1 does not come, because its script has ended"
# As TensorFlow 2.21 has passed them on.
HOST_GRAPH = (
    "Graph execution error:\n\nDetected at node Assert defined at (most recent call last):\n"
    '  File "train.py", line 34, in <module>\n\n'
    f"assertion failed: [PeerAbsent: TFRUN-406: {REASON}]\n"
    "\t [[{{node Assert}}]] [Op:__inference_multi_step_on_iterator_709]"
)
RING = (
    "Collective ops is aborted by: "
    f"TFRUN-406: {REASON}\nThe error could be from a previous operation. Restart your program to "
    "reset. [Op:CollectiveReduceV2] name: "
)
RING_MISMATCH = (
    "Collective ops is aborted by: Collective instance 113 expected type 0 and data_type 1 but "
    "got type 2 and data_type 3\nAdditional GRPC error information from remote target"
)


@pytest.mark.parametrize("message", [f"TFRUN-406: {REASON}", HOST_GRAPH, RING])
def test_the_reason_is_found(message: str) -> None:
    assert unmatched_call.reason_in(message) == REASON


@pytest.mark.parametrize(
    "kind", ["InvalidArgumentError", "InternalError", "FailedPreconditionError"]
)
@pytest.mark.parametrize("message", [HOST_GRAPH, RING, RING_MISMATCH])
def test_nobody_has_gone(kind: str, message: str) -> None:
    """The next round would have the same."""
    assert not is_peer_error(kind, message)
    assert unmatched_call.reason_in(message)


@pytest.mark.parametrize(
    "message",
    [
        "Collective ops is aborted by: a peer has left the round",
        "assertion failed: [PeerGone: Collective ops is aborted by: rank 1 has gone]",
        "",
    ],
)
def test_other_ends_have_another_reason(message: str) -> None:
    assert unmatched_call.reason_in(message) is None


def test_where_all_are() -> None:
    places = {"worker:0": "in a (line 1)", "worker:1": "elsewhere", "worker:2": "in b"}
    assert unmatched_call.parted(places, "worker:2") == (
        "worker 0 is in a (line 1), worker 1 is elsewhere, and this one in b"
    )


def test_what_a_script_gets_to_see() -> None:
    error = unmatched_call.error(
        "model.evaluate", unmatched_call.ended(["worker:2", "worker:1"]), "train.py:14"
    )
    assert str(error).startswith(
        "TFRUN-406: model.evaluate needs every worker: worker 1 and worker 2 do not come, "
        "because their scripts have ended (in train.py:14)."
    )
    marked = unmatched_call.marked(unmatched_call.ended(["worker:1"]))
    assert unmatched_call.reason_in(marked) == REASON
    assert unmatched_call.stands(1, 12) == "in model.fit (line 12)"
    assert unmatched_call.stands(0, 0) == "in a collective"
