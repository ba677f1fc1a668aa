"""What the workers of a loop have traced is told to a successor, which traces it beside the job.

It gets to the loop where the others are in the midst of it, and they would wait while it traces its
first step. So they tell which functions of the script were traced, and with what; a successor that
runs the same script finds these functions, and asks TensorFlow for the same.

What a successor does not find, or cannot trace yet, it traces in its first step as everybody does;
and what is another function here, because something that the script sets later is not set yet.
"""

from __future__ import annotations

import base64
import functools
import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import struct_pb2
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.saved_model import nested_structure_coder

from tfrun.engine import loop_calls, synchronous, warm_up
from tfrun.engine.loop_traces import Traces
from tfrun.engine.step_clock import ORIGIN

LONGEST = 16_384  # bytes of what is told of a trace: more is not worth a message
_DICT = "tfrun dict"
_NUMBERS = ("tensor", "i", "f", "b", "type", "shape")  # what an operation may be told


def told(call: Traces, specs: Sequence[tf.TensorSpec], traced: Any) -> str | None:
    """What is told of a trace; None where nobody could find what it was made of.

    Args:
      call: what was traced.
      specs: for tensors like these.
      traced: what has come of it, a concrete function.
    """
    place = _place(call.known_as)
    if place is None:
        return None
    given = _without_dicts(call.structure), list(call.fixed.items()), list(specs)
    try:
        packed = nested_structure_coder.encode_structure(given).SerializeToString()
    except (nested_structure_coder.NotEncodableError, TypeError, ValueError):
        return None  # an object of the script's own
    is_run = isinstance(call.function, functools.partial)  # by the strategy
    text = json.dumps([place, is_run, base64.b64encode(packed).decode(), fingerprint(traced)])
    return text if len(text) <= LONGEST else None


def trace(strategy: Any, traced: Iterable[str], variables: Callable[[], Any]) -> bool:
    """Traces what others have traced, as far as it is found here.

    Args:
      strategy: that of the loop.
      traced: what they have told, in their order.
      variables: gives all of the loop's that are there by now.

    Returns:
      Whether this process can go on: False where a trace that made variables was cut off.
    """
    functions = _functions() if traced else {}
    for text in traced:
        place, is_run, packed, wanted = json.loads(text)
        found = functions.get(tuple(place), [])
        if len(found) != 1:  # or it is made once for each model
            continue
        value = struct_pb2.StructuredValue.FromString(base64.b64decode(packed))
        structure, fixed, specs = nested_structure_coder.decode_proto(value)
        # One whose first trace fails makes no variables in another: the script's is left as it is.
        function = found[0]._clone(found[0].python_function)
        function = synchronous.run_by(strategy, function) if is_run else function
        call = loop_calls.ahead(strategy, function, found[0], _with_dicts(structure), dict(fixed))
        before = variables()
        try:
            made = call.traced_for(tuple(specs))
        except Exception:  # what it needs may not be there before the loop begins
            loop_calls.forget_ahead(call)
            if variables() != before:
                return False
            continue
        if fingerprint(made) == wanted:
            turns = strategy.extended._host_calls.turns
            turns.copies.prepare_ahead(made)
            warm_up.run(turns, call, specs, variables())
        else:
            loop_calls.forget_ahead(call)
    return True


def _without_dicts(structure: Any) -> Any:
    """A structure in which dictionaries keep their order when it is encoded."""
    if type(structure) is dict:
        return (_DICT, *((key, _without_dicts(value)) for key, value in structure.items()))
    if type(structure) in (tuple, list):
        return type(structure)(map(_without_dicts, structure))
    return structure


def _with_dicts(structure: Any) -> Any:
    """The inverse of `_without_dicts`."""
    if type(structure) not in (tuple, list):
        return structure
    if structure and isinstance(structure[0], str) and structure[0] == _DICT:
        return {key: _with_dicts(value) for key, value in structure[1:]}
    return type(structure)(map(_with_dicts, structure))


def fingerprint(traced: Any) -> str:
    """What tells a concrete function from another one, in any process of the script.

    That is its operations and those of the functions that it calls, with their numbers (those that
    the script's Python has given among them), and the names of its variables. Not the names of
    operations and functions, which TensorFlow counts in each process.
    """
    definition = traced.graph.as_graph_def()
    inner = sorted(_digest(function.node_def) for function in definition.library.function)
    called = {id(variable.handle): variable.name for variable in traced.graph.variables}
    names = [called.get(id(outer), "") for outer, _ in traced.graph.captures]
    whole = "\n".join([_digest(definition.node), *inner, *names])
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _digest(nodes: Iterable[Any]) -> str:
    found = hashlib.sha256()
    for node in nodes:
        if node.name.rsplit("/", 1)[-1].startswith(ORIGIN):
            continue
        found.update(node.op.encode())
        for name, value in sorted(node.attr.items()):
            if not name.startswith("_") and value.WhichOneof("value") in _NUMBERS:
                found.update(value.SerializeToString(deterministic=True))
    return found.hexdigest()


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
