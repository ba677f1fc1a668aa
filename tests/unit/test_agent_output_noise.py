"""TensorFlow's own log lines stay off the terminal; everything else passes, at once."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfrun.agent.output_streams import NOISE, NoiseFilter

NOISY = [
    "I0000 00:00:1763640000.123456    1234 port.cc:153] oneDNN custom operations are on.",
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "W0000 00:00:1763640000.123456  1234 gpu_device.cc:2342] Cannot dlopen some GPU libraries.",
    "E1120 13:00:00.123456    1234 cuda_executor.cc:1228] INTERNAL: CUDA Runtime error",
    "2025-11-20 13:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN is on.",
    "2025-11-20 13:00:00.123456: W tensorflow/core/framework/op.cc:1] bad",
    "2025-11-20 13:00:00.123456: E external/local_xla/xla/stream.cc:1] bad",
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow "
    "with the appropriate compiler flags.",
    "INFO:tensorflow:Assets written to: x/assets",
    "/job:worker/replica:0/task:1",
    "The tasks have crashed. Check the task logs for an earlier error, or scheduler events (e.g. "
    "preemption, eviction) to debug further. [type.googleapis.com/tensorflow.DerivedStatus='']",
    "The error could be from a previous operation. Restart your program to reset.",
    "\t [[{{node CollectiveReduceV2}}]] [type.googleapis.com/tensorflow.DerivedStatus='']",
]
KEPT = [
    "F0000 00:00:1763640000.123456    1234 check.cc:1] Check failed: x",
    "2025-11-20 13:00:00.123456: F tensorflow/core/framework/tensor.cc:733] Check failed",
    "WARNING:tensorflow:AutoGraph could not be transformed",
    "WARNING: mine",
    "Traceback (most recent call last):",
    "ValueError: 0 is not valid",
    "I am a line",
    "2025-11-20 my own date",
    "2025-11-20 13:00:00,123 - root - INFO - Python's own logging",
    "10/10 [====] - loss: 0.3",
    "\t [[{{node mine/MatMul}}]] [Op:__inference_total_56]",
    "E",
    "",
    "  I0000 00:00:1763640000.123456    1234 port.cc:153] quoted",
]


def through(*pieces: str) -> str:
    noise = NoiseFilter()
    return "".join([noise.feed(piece) for piece in pieces]) + noise.flush()


def cut(text: str, places: list[int]) -> list[str]:
    """Cuts the text at the places (modulo its length)."""
    at = sorted({place % (len(text) + 1) for place in places})
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


def test_what_grpc_adds_is_noise_after_noise_alone() -> None:
    first = "W0000 00:00:1763640000.123456    1234 destroy_tensor_handle_node.h:59] Ignoring it\n"
    more = (
        "Additional GRPC error information from remote target /job:worker/replica:0/task:0 while "
        "calling /tensorflow.eager.EagerService/Enqueue:\n"
        ':UNKNOWN:Error received from peer  {grpc_status:3, grpc_message:"Unable to find it"}\n'
    )
    assert through(f"a\n{first}{more}b\n") == "a\nb\n"
    assert through(*f"a\n{first}{more}b\n") == "a\nb\n"
    # In an error of the script's it is the cause.
    assert (
        through(f"UnavailableError: it is gone\n{more}") == f"UnavailableError: it is gone\n{more}"
    )


def test_the_options_of_a_session_are_noise_to_their_end() -> None:
    first = "I0000 00:00:1795781889.969848   23151 eager_service_impl.cc:355] SessionOptions: x\n"
    more = 'device_count {\n  key: "CPU"\n  value: 1\n}\nallow_soft_placement: true\n\n'
    text = f"a\n{first}{more}loss: 1\n}}\n\nb\n"
    assert through(text) == through(*text) == "a\nloss: 1\n}\n\nb\n"
    assert through(f"{first}device_count {{\nTraceback:\n  x\n") == "Traceback:\n  x\n"
    assert through(f"a\n{more}") == f"a\n{more}"


PLACES = st.lists(st.integers(0, 10_000), max_size=8)
LINES = st.lists(st.sampled_from(KEPT) | st.text(max_size=30), max_size=6)


@pytest.mark.parametrize("line", NOISY)
@pytest.mark.parametrize("end", ["\n", ""])
def test_noise_is_removed(line: str, end: str) -> None:
    assert through(line + end) == ""
    assert through(f"before\n{line}\nafter\n") == "before\nafter\n"


@pytest.mark.parametrize("line", KEPT)
@pytest.mark.parametrize("end", ["\n", ""])
def test_everything_else_is_kept(line: str, end: str) -> None:
    assert through(line + end) == line + end


@pytest.mark.parametrize(
    "piece",
    ["\r 10%|#   | 1/10", "\rEpoch 1", "loss: 0.3", "\r1/10 [=>..]", " 3/10", "Epoch 1/3", "{"],
)
def test_a_line_that_is_still_growing_passes_at_once(piece: str) -> None:
    noise = NoiseFilter()
    assert noise.feed(piece) == piece
    assert noise.feed(piece) == piece


@pytest.mark.parametrize("piece", ["1/10 [=>..]\r", "10%|#  |\r", "2 files\r"])
def test_a_bar_that_starts_with_a_number_passes_at_once(piece: str) -> None:
    noise = NoiseFilter()
    assert noise.feed(piece) + noise.feed(piece) == 2 * piece


@given(LINES, PLACES)
@example([f"x{NOISY[0]}", ""], [1])
def test_text_without_noise_passes_unchanged_however_it_is_cut(
    lines: list[str], places: list[int]
) -> None:
    text = "\n".join(line for line in lines if not re.match(NOISE, line))
    if not any(NOISE.match(line) for line in text.split("\n")):
        assert through(*cut(text, places)) == text


@given(st.sampled_from(NOISY), PLACES)
@example(NOISY[0], [1])
def test_noise_is_removed_however_it_is_cut(line: str, places: list[int]) -> None:
    text = f"before\n{line}\nafter\n"
    assert through(*cut(text, places)) == "before\nafter\n"
