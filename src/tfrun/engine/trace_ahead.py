"""What the workers of a loop have traced is told to a successor, which traces it beside the job.

It gets to the loop where the others are in the midst of it, and they would wait while it traces its
first step. So they tell which functions of the script were traced, and with what; a successor that
runs the same script finds these functions, and asks TensorFlow for the same.

Nothing is computed by it: TensorFlow prepares a function before it looks whether it was cancelled.
What a successor does not find, or cannot trace yet, it traces in its first step as everybody does.
"""

from __future__ import annotations

import base64
import gc
import json
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import struct_pb2
from tensorflow.python.eager import cancellation
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.saved_model import nested_structure_coder

from tfrun.engine import loop_calls, own_copies, synchronous
from tfrun.engine.loop_traces import Traces

LONGEST = 16_384  # bytes of what is told of a trace: more is not worth a message


def told(call: Traces, specs: Sequence[tf.TensorSpec]) -> str | None:
    """What is told of a trace; None where nobody could find what it was made of.

    Args:
      call: what was traced.
      specs: for tensors like these.
    """
    place = _place(call.known_as)
    if place is None:
        return None
    given = call.structure, list(call.fixed.items()), list(specs)
    try:
        packed = nested_structure_coder.encode_structure(given).SerializeToString()
    except (nested_structure_coder.NotEncodableError, TypeError, ValueError):
        return None  # an object of the script's own
    is_called = call.function is call.known_as  # else it is run by the strategy
    text = json.dumps([place, is_called, base64.b64encode(packed).decode()])
    return text if len(text) <= LONGEST else None


def trace(strategy: Any, traced: Iterable[str]) -> int:
    """Traces what others have traced, as far as it is found here.

    Args:
      strategy: that of the loop.
      traced: what they have told, in their order.

    Returns:
      How many traces were made.
    """
    functions, count = _functions() if traced else {}, 0
    for text in traced:
        place, is_called, packed = json.loads(text)
        found = functions.get(tuple(place), [])
        if len(found) != 1:  # or it is made once for each model
            continue
        value = struct_pb2.StructuredValue.FromString(base64.b64decode(packed))
        structure, fixed, specs = nested_structure_coder.decode_proto(value)
        function = found[0] if is_called else synchronous.run_by(strategy, found[0])
        call = loop_calls.ahead(strategy, function, found[0], structure, dict(fixed))
        try:
            _prepare(call.traced_for(tuple(specs)), specs)
        except Exception:  # what it needs may not be there before the loop begins
            loop_calls.forget_ahead(call)
            continue
        count += 1
    return count


def _prepare(traced: Any, specs: Sequence[tf.TensorSpec]) -> None:
    """Has TensorFlow prepare a function to be run: it places and optimizes its operations."""
    own_copies.assigned(traced.graph)
    if not all(spec.shape.is_fully_defined() and _is_plain(spec.dtype) for spec in specs):
        return
    manager = cancellation.CancellationManager()
    manager.start_cancel()
    given = [tf.zeros(spec.shape, spec.dtype) for spec in specs]
    try:
        manager.get_cancelable_function(traced)(given)
    except tf.errors.CancelledError:
        pass


def _is_plain(dtype: tf.DType) -> bool:
    return dtype.is_numpy_compatible and dtype not in (tf.resource, tf.variant)


def _place(function: Any) -> tuple[str, int, str] | None:
    """Where the script defines a `tf.function`; None where it is not known."""
    code = getattr(getattr(function, "python_function", None), "__code__", None)
    return code and (code.co_filename, code.co_firstlineno, code.co_name)


def _functions() -> dict[tuple[str, int, str], list[Any]]:
    """The functions of this process, by where they are defined."""
    found: dict[tuple[str, int, str], list[Any]] = {}
    for one in gc.get_objects():
        if type(one) is polymorphic_function.Function and (place := _place(one)) is not None:
            found.setdefault(place, []).append(one)
    return found
