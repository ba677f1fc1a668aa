"""What outlives a process of a script's values, and comes back as it was."""

from __future__ import annotations

import copy
import datetime
import enum
import json
import math
import random
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tfrun.state import plain_data


class Kept(NamedTuple):
    number: int


class Level(enum.Enum):
    HIGH = "high"


class Counts:
    inner: Any

    def __init__(self) -> None:
        self.seen: list = []


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
)


@given(plain)
def test_plain_data_comes_back(value) -> None:
    arrays: dict = {}
    encoded = plain_data.encode(value, arrays, "x")
    decoded = plain_data.decode(encoded, arrays)
    assert decoded == value
    assert type(decoded) is type(value)


def test_arrays_and_scalars_come_back() -> None:
    arrays: dict = {}
    value = {"a": [np.float32(0.1), np.arange(3)], 2: (np.int64(5),)}
    decoded = plain_data.decode(plain_data.encode(value, arrays, "x"), arrays)
    assert isinstance(decoded["a"][0], np.float32) and decoded["a"][0] == np.float32(0.1)
    assert np.array_equal(decoded["a"][1], np.arange(3))
    assert decoded[2] == (5,)


def test_tensors_come_back() -> None:
    arrays: dict = {}
    encoded = plain_data.encode([tf.constant([0.5, 0.25]), tf.constant(3)], arrays, "x")
    vector, number = plain_data.decode(json.loads(json.dumps(encoded)), arrays)
    assert tf.is_tensor(vector) and vector.numpy().tolist() == [0.5, 0.25]
    assert tf.is_tensor(number) and (number.dtype, int(number)) == (tf.int32, 3)


def rising() -> int:
    return 1


@pytest.mark.parametrize(
    "value",
    [
        *(keras.ops.less, np.greater, len, math.isnan, rising, dict, keras.layers.Dense),
        *({1, 2}, frozenset({"a"}), deque([1, 2], maxlen=3), Counter("aab"), b"bytes"),
        *(OrderedDict(b=1, a=(2,)), defaultdict(list, {"a": [1]}), Path("a/b")),
    ],
)
def test_functions_and_collections_come_back(value) -> None:
    arrays: dict = {}
    encoded = json.loads(json.dumps(plain_data.encode(value, arrays, "x")))
    decoded = plain_data.decode(encoded, arrays)
    assert decoded == value and type(decoded) is type(value)
    if isinstance(value, defaultdict | deque):
        again = copy.copy(decoded)
        assert repr(again) == repr(value)


@pytest.mark.parametrize(
    "make",
    [
        *(np.random.default_rng, np.random.RandomState, random.Random),
        lambda seed: np.random.Generator(np.random.MT19937(seed)),
    ],
)
def test_random_generators_go_on(make) -> None:
    arrays: dict = {}
    drawn = make(3)
    drawn.normalvariate() if isinstance(drawn, random.Random) else drawn.normal()
    encoded = json.loads(json.dumps(plain_data.encode(drawn, arrays, "x")))
    decoded = plain_data.decode(encoded, arrays)
    one, two = (
        [g.random() for _ in range(3)] if isinstance(g, random.Random) else list(g.uniform(size=3))
        for g in (drawn, decoded)
    )
    assert one == two


def test_a_function_that_is_gone_is_none_of_this_process() -> None:
    with pytest.raises(LookupError):
        plain_data.decode({"named": f"{__name__}:no_longer"}, {})


@pytest.mark.parametrize(
    "value",
    [
        *(object(), tf.Variable(1.0), {"a": object()}, np.array([object()]), lambda: 1),
        *(random.SystemRandom(), [].append),
        np.zeros(2, "i4,f4"),
    ],
)
def test_what_is_no_plain_data_is_refused(value) -> None:
    with pytest.raises(TypeError, match="not plain data"):
        plain_data.encode(value, {}, "x")


def test_what_says_itself_what_it_is_made_of_comes_back() -> None:
    values = [
        *(Kept(1), Level.HIGH, 1 + 2j, Decimal("0.10"), Fraction(1, 3)),
        *(datetime.date(2026, 1, 2), datetime.timedelta(seconds=3)),
        datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.timezone.utc),
    ]
    decoded = plain_data.decode(json.loads(json.dumps(plain_data.encode(values, {}, "x"))), {})
    assert decoded == values
    assert [type(one) for one in decoded] == [type(one) for one in values]


def test_an_object_of_the_scripts_comes_back_as_a_new_one_if_all_of_it_is_kept() -> None:
    whole, part = Counts(), Counts()
    whole.inner, part.open = Counts(), object()
    whole.inner.seen = [np.arange(3)]
    arrays: dict = {}
    encoded = json.loads(json.dumps(plain_data.encode([whole, part], arrays, "x")))
    assert plain_data.decode(encoded[0], arrays).inner.seen[0].tolist() == [0, 1, 2]
    with pytest.raises(LookupError, match="Counts"):
        plain_data.decode(encoded[1], arrays)


def test_an_object_that_holds_itself_has_the_rest_of_it_kept() -> None:
    value = Counts()
    value.inner, value.seen = value, [1]
    assert plain_data.encode(value, {}, "x")["object"] == [
        f"{__name__}:Counts",
        {"seen": [1]},
        False,
    ]


def test_values_come_back_in_those_that_are_there() -> None:
    """For code may know them by other names as well."""
    old = {"list": [1, [2], [2]], "set": {1}, "array": np.zeros(2), "own": Counts()}
    there = dict(old)
    new = {"list": [3, [4], [5]], "set": {6}, "array": np.ones(2), "own": Counts(), "more": 7}
    new["own"].seen = [8]
    arrays: dict = {}
    found = plain_data.restored(old, plain_data.encode(new, arrays, "x"), arrays)
    assert found is old and old["more"] == 7
    assert all(old[key] is value for key, value in there.items())
    assert (old["list"], old["set"], old["own"].seen) == ([3, [4], [5]], {6}, [8])
    assert old["array"].tolist() == [1.0, 1.0]


def test_two_names_of_one_list_become_two_lists() -> None:
    one = [0]
    old = [one, one]
    assert plain_data.restored(old, [[1], [2]], {}) == [[1], [2]]


def test_an_array_is_kept_as_it_was() -> None:
    arrays: dict = {}
    value = np.zeros(3)
    encoded = plain_data.encode(value, arrays, "x")
    value += 1
    assert plain_data.decode(encoded, arrays).tolist() == [0.0, 0.0, 0.0]


def test_what_keras_has_made_of_a_models_list_is_a_list() -> None:
    class Counts(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.seen, self.table = [1, 2], {"a": [3]}

    model = Counts()
    encoded = plain_data.encode([model.seen, model.table], {}, "x")
    assert plain_data.decode(encoded, {}) == [[1, 2], {"a": [3]}]
