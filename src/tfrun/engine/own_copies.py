"""What each replica of a worker has for itself: the variables that a step assigns as it computes.

Weights and an optimizer's variables are there once: one replica updates them for all. What a step
assigns besides (statistics of layers, seeds, metrics, a script's own variables) each replica of a
worker assigns in variables of its own, which the same traced function is called with: TensorFlow
takes them as arguments that it finds by itself ("captures"), and these can be exchanged.

Between two steps the first replica's are what everybody reads and assigns; each step begins with
the others' set to them. Only what metrics count stays apart, and is added up when it is read.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.framework import auto_control_deps_utils
from tensorflow.python.ops import resource_variable_ops

from tfrun.job.errors import TfrunError
from tfrun.job.world import one_for_good, take_one_for_good

UPDATE = "tfrun_update"  # names the branch in which an optimizer updates
HANDS_IN = "tfrun_hands_in"  # and the operation by which a replica hands in what is to be summed
_calling = threading.local()
_assigned_by: weakref.WeakKeyDictionary[Any, tuple[set[int], set[int]]]
_assigned_by = weakref.WeakKeyDictionary()


class OwnCopies:
    """The variables of which each replica of this worker has its own.

    Args:
      count: of replicas, at most.

    Attributes:
      evaluates: what is traced is Keras's evaluation, which begins with metrics of nothing.
    """

    def __init__(self, count: int) -> None:
        self.count, self.evaluates = count, False
        self._of_evaluations: set[int] = set()  # those that nothing else assigns
        self._copies: dict[int, list[Any]] = {}  # by the first one's handle
        self._handles: dict[int, list[Any]] = {}  # likewise
        self._kept: list[list[Any]] = []  # those that a step begins with the first one's value
        # Functions that are called, with what they are called with: of the first one, and of each.
        self._ready: dict[int, tuple[Any, list[Any], list[Any]]] = {}
        self._ahead: set[int] = set()  # the ids of those that have not been called yet
        self._apart = False
        self._spread: Any = None

    @property
    def own(self) -> KeysView[int]:
        """The ids of the first ones' handles, of all that steps assign besides updates."""
        return self._copies.keys()

    def add(self, handles: list[Any]) -> None:
        """What a replica is called with instead of the first one's; the list may change."""
        self._handles[id(handles[0])] = handles

    def apart(self, variable: Any) -> list[Any]:
        """What each replica here has counted of a metric, in a variable of its own.

        Args:
          variable: the first one's.
        """
        if id(variable.handle) not in self._copies:
            self._copy(variable)
        return self._copies[id(variable.handle)]

    def counted(self) -> list[list[Any]]:
        """What each replica has counted of each metric, in an order that all workers share."""
        return [made for made in self._copies.values() if is_apart(made[0])]

    def counted_by_steps(self) -> dict[int, list[Any]]:
        """The same but for what only Keras's evaluation counts, by the first one's handle."""
        return {
            key: made
            for key, made in self._copies.items()
            if key not in self._of_evaluations and is_apart(made[0])
        }

    def besides(self, known: set[int]) -> str:
        """The name of a variable that steps have assigned besides these; "" where there is none.

        A metric that has counted nothing yet, or that the script has reset, is nothing to keep.

        Args:
          known: the ids of the first ones' handles.
        """
        for key, made in self._copies.items():
            if key in known or key in self._of_evaluations:
                continue
            if not (is_apart(made[0]) and not any(map(_has_counted, made))):
                return made[0].name
        return ""

    def keeps_besides(self, known: set[int]) -> bool:
        """Whether steps assign other variables than these and metrics.

        Args:
          known: as of `besides`.
        """
        return any(key not in known and not is_apart(made[0]) for key, made in self._copies.items())

    def forget_counted(self, besides: set[int]) -> None:
        """Nothing is counted yet in any metric, but for these.

        Args:
          besides: the ids of the first ones' handles.
        """
        for key, made in self._copies.items():
            if key not in besides and is_apart(made[0]):
                for copy in made:
                    copy.assign(tf.zeros_like(copy), read_value=False)

    def prepare(self, function: Any) -> bool:
        """Has a concrete function take the copies of the replica in whose thread it is called.

        Returns:
          Whether it has not been called before.
        """
        if id(function) in self._ready:
            is_new = id(function) in self._ahead
            self._ahead.discard(id(function))
            return is_new
        variables = {id(v.handle): v for v in function.graph.variables}
        besides, in_updates = assigned(function.graph)
        if not self.evaluates:
            self._of_evaluations -= besides
        for key in (id(outer) for outer, _ in function.graph.captures):  # as they were traced
            if one_for_good():  # in the midst of the trace, perhaps: then nothing tells updates
                self._kept, self._spread = [], None
                break
            if key in besides and key in variables and key not in self._copies:
                if key in in_updates:
                    if not take_one_for_good("the step assigns weights that an optimizer updates"):
                        raise _trained_and_assigned(variables[key])
                elif variables[key].is_initialized():
                    self._copy(variables[key])
                elif not take_one_for_good("the step makes variables that it assigns"):
                    raise _made_in_a_step(variables[key])
        first = function.captured_inputs
        each = [self._chosen(tensor) for tensor in first]
        function.set_external_captures(each if self._apart else first)
        self._ready[id(function)] = function, first, each
        if self.count > 1:
            self.begin_step()  # here, where a step is traced: it takes long the first time
        return True

    def prepare_ahead(self, function: Any) -> None:
        """As `prepare`, long before it is called: to make all copies takes a while."""
        self.prepare(function)
        self._ahead.add(id(function))

    def fills(self, place: int, values: Mapping[int, NDArray]) -> bool:
        """Gives one replica what it begins a step with that others are in the midst of.

        Args:
          place: its position.
          values: of all that it has for itself, by the id of the first one's handle.

        Returns:
          False, and nothing has changed, where there are not all of them.
        """
        if not self._copies.keys() <= values.keys():
            return False
        for key, made in self._copies.items():
            made[place].assign(values[key], read_value=False)
        return True

    def rearrange(self, places: Sequence[int]) -> None:
        """Between two steps: each replica's goes from one of these places to where that stands."""
        if list(places) != sorted(places):
            for made in self._copies.values():
                for to, value in enumerate([made[place].read_value() for place in places]):
                    made[to].assign(value, read_value=False)

    def tell_apart(self, wanted: bool) -> None:
        """Whether functions are called with what is the calling replica's, or all with the first's.

        To ask for each argument whose it is takes time in each step, and is of no use to one alone.
        """
        if wanted != self._apart:
            self._apart = wanted
            for function, first, each in self._ready.values():
                function.set_external_captures(each if wanted else first)

    def _copy(self, variable: Any) -> None:
        with tf.init_scope(), tf.device(variable.device):
            value = variable.read_value()
            value = tf.zeros_like(value) if is_apart(variable) else value
            make = resource_variable_ops.ResourceVariable
            others = [make(value, trainable=False) for _ in range(self.count - 1)]
        made = [variable, *others]
        self._copies[id(variable.handle)] = made
        if self.evaluates:
            self._of_evaluations.add(id(variable.handle))
        self.add([copy.handle for copy in made])
        if not is_apart(variable):
            self._kept.append(made)
            self._spread = None

    def _chosen(self, tensor: Any) -> Any:
        handles = self._handles.get(id(tensor))
        if handles is None:
            return tensor
        return lambda: handles[getattr(_calling, "replica", 0)]

    def begin_step(self) -> None:
        """Every replica begins with what the first one has."""
        if self._spread is None and self._kept:
            self._spread = tf.function(self._assign_all, autograph=False).get_concrete_function()
        if self._spread is not None:
            self._spread()

    def _assign_all(self) -> None:
        for first, *others in self._kept:
            value = first.read_value()
            for other in others:
                other.assign(value, read_value=False)


def calls_as(replica: int) -> None:
    """From now on this thread calls functions as that replica of this worker."""
    _calling.replica = replica


def is_apart(variable: Any) -> bool:
    """Whether TensorFlow keeps a variable apart on each replica until it is read: a metric's."""
    container = getattr(variable.handle, "_distributed_container", lambda: None)()
    return (
        container is not None
        and container.synchronization == tf.VariableSynchronization.ON_READ
        and container.aggregation == tf.VariableAggregation.SUM
    )


def _has_counted(variable: Any) -> bool:
    return bool(np.any(variable.numpy()))


def _trained_and_assigned(variable: Any) -> TfrunError:
    return TfrunError(
        "TFRUN-518",
        f"the step assigns {variable.name!r}, which an optimizer updates, too",
        where="the model's train_step",
        expected="with --replicas, weights that an optimizer alone changes",
        fix="Use a constraint of the layer or the optimizer's weight_decay, or leave out "
        "--replicas",
    )


def _made_in_a_step(variable: Any) -> TfrunError:
    return TfrunError(
        "TFRUN-518",
        f"the first step makes {variable.name!r}, and assigns it",
        where="the model's train_step, or a layer that it calls",
        expected="with --replicas, variables that exist before the first step",
        fix="Make it in __init__ or build, or leave out --replicas",
    )


def assigned(graph: Any) -> tuple[set[int], set[int]]:
    """The ids of the captured handles that a function assigns: besides updates, and in them.

    To look for them takes a while; who traces a function before it is needed asks at once.
    """
    if graph not in _assigned_by:
        _assigned_by[graph] = _look_for_assigned(graph)
    return _assigned_by[graph]


def _look_for_assigned(graph: Any) -> tuple[set[int], set[int]]:
    outer = {id(inner): id(tensor) for tensor, inner in graph.captures}
    besides, in_updates = set(), set()
    for position, updates in _written(graph, False):
        key = outer.get(id(graph.inputs[position]))
        if key is not None:
            (in_updates if updates else besides).add(key)
    return besides, in_updates


def _written(graph: Any, updates: bool) -> set[tuple[int, bool]]:
    """The positions of a graph's inputs that it assigns, and whether an optimizer does."""
    place = {id(tensor): i for i, tensor in enumerate(graph.inputs)}
    found: set[tuple[int, bool]] = set()
    for op in graph.get_operations():
        if op.type == "Identity" and op.inputs[0].dtype == tf.resource:
            if id(op.inputs[0]) in place:
                place[id(op.outputs[0])] = place[id(op.inputs[0])]
            continue
        inner = list(_called(graph, op))
        within = updates or UPDATE in op.name.rsplit("/", 1)[-1]
        for called, offset in inner:
            for position, is_update in _written(called, within):
                at = place.get(id(op.inputs[offset + position]))
                if at is not None:
                    found.add((at, is_update))
        if inner or op.type in auto_control_deps_utils.RESOURCE_READ_OPS:
            continue
        for tensor in op.inputs:
            if tensor.dtype == tf.resource and id(tensor) in place:
                found.add((place[id(tensor)], updates))
    return found


def _called(graph: Any, op: Any) -> Iterator[tuple[Any, int]]:
    """The graphs of the functions that an op calls, and which of its inputs is their first."""
    offset = 1 if op.type in ("If", "StatelessIf", "Case", "StatelessCase") else 0
    for name in _function_names(op):
        definition = graph._get_function(name)
        inner = getattr(definition, "graph", None)
        if inner is not None:
            yield inner, offset


def _function_names(op: Any) -> Iterable[bytes]:
    for attribute in op.node_def.attr.values():
        if attribute.HasField("func"):
            yield attribute.func.name
        yield from (each.name for each in attribute.list.func)
