"""The table of patches: all of it fits, and nothing else is replaced."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from docs_blocks import ROOT
from tfrun.patches.__main__ import page
from tfrun.patches.apply import apply, fits
from tfrun.patches.patch import Patch
from tfrun.patches.table import TABLE

COMPARE = """
import inspect, sys, types

def attributes():
    '''All attributes of the modules and classes of Keras, TensorFlow and what they need.'''
    found, classes = {}, set()
    for name, module in list(sys.modules.items()):
        is_theirs = name.split(".")[0] in ("keras", "tensorflow", "h5py", "numpy")
        if not is_theirs or type(module) is not types.ModuleType:
            continue
        for key, value in list(vars(module).items()):
            if not isinstance(value, types.ModuleType):
                found[f"{name}:{key}"] = value
            if isinstance(value, type) and value not in classes:
                classes.add(value)
                where = f"{value.__module__}:{value.__qualname__}"
                found.update({f"{where}.{own}": each for own, each in vars(value).items()})
    return found

def replaced(before):
    after = attributes()
    modules = {name.partition(":")[0] for name in before}  # others were imported since
    return {
        name for name, value in after.items()
        if name.partition(":")[0] in modules and before.get(name) is not value
    }
"""
CODE = (
    COMPARE
    + """
import warnings
import keras
import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as private
from tensorflow.python.eager import context
from tfrun.patches.apply import apply, replacements
from tfrun.patches.table import TABLE

names = {
    "tf.distribute": tf.distribute.MultiWorkerMirroredStrategy,
    "experimental": tf.distribute.experimental.MultiWorkerMirroredStrategy,
    "compat": tf.compat.v2.distribute.MultiWorkerMirroredStrategy,
    "compat experimental": tf.compat.v2.distribute.experimental.MultiWorkerMirroredStrategy,
    "private": private.CollectiveAllReduceStrategy,
}
rows = {patch: list(replacements(patch)) for patch in TABLE}  # which imports all that it needs
for patch, found in rows.items():
    count = len(patch.targets)
    assert found and (patch.also or len(found) == count), f"{list(patch.targets)} has no place"
    for each in found:
        assert each.made is not each.original, each
places = {(id(each.owner), each.name): each for found in rows.values() for each in found}
assert len(places) == sum(map(len, rows.values())), "an attribute has two rows"

def name_of(each):
    if isinstance(each.owner, type):
        return f"{each.owner.__module__}:{each.owner.__qualname__}.{each.name}"
    return f"{each.owner.__name__}:{each.name}"

before = attributes()
apply()
listed = {name_of(each) for each in places.values()}
assert replaced(before) == listed, replaced(before) ^ listed
first = attributes()
apply()
assert not replaced(first), "applied twice"
for each in places.values():  # what a class inherits was replaced before it
    if isinstance(each.owner, type) and isinstance(each.original, types.FunctionType):
        bases = (vars(base) for base in each.owner.__mro__[1:])
        inherited = next((base[each.name] for base in bases if each.name in base), None)
        if name_of(each) not in before:
            made = getattr(each.owner, each.name)
            assert inspect.unwrap(made, stop=lambda f: f is inherited) is inherited, each
assert context.context()._context_handle is None, "an op was executed: fork is no longer safe"

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        self.dense(data)
        return {"loss": tf.constant(0.0)}

strategy = tf.distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    model = Own()
    model.compile("sgd")
model.fit(tf.zeros([4, 2]), verbose=0)
now = attributes()
code = (types.FunctionType, property, type)  # not a cache, nor what is known of the machine by now
changed = {name for name in replaced(first) if isinstance(now[name], code)}
assert not changed, f"a training has replaced {changed}"
"""
    + """
from tfrun.engine.multi_worker import MultiWorkerMirrored
Implementation = tf.distribute.experimental.CommunicationImplementation
warnings.simplefilter("error")
for name, public in names.items():
    strategy = public()
    assert isinstance(strategy, MultiWorkerMirrored), name
    assert isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy), name
    assert isinstance(strategy, tf.distribute.experimental.MultiWorkerMirroredStrategy), name
    assert type(strategy.extended).__name__ == "MultiWorkerExtended", name
for old in (names["experimental"], names["compat experimental"]):
    strategy = old(Implementation.RING)
    assert strategy.extended._communication_options.implementation == Implementation.RING
    assert old(communication=Implementation.RING).num_replicas_in_sync == 1

options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=5)
strategy = names["tf.distribute"](communication_options=options)
assert strategy.extended._communication_options.bytes_per_pack == 5
assert not isinstance(tf.distribute.get_strategy(), MultiWorkerMirrored)
"""
)


def test_what_is_replaced_fits_and_every_name_gives_the_repaired_strategy() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG",)}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**environment, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_page_is_that_of_the_table() -> None:
    """`python -m tfrun.patches > docs/patches.md` makes it so."""
    assert (ROOT / "docs/patches.md").read_text(encoding="utf-8") == f"{page()}\n"


@pytest.mark.parametrize("patch", TABLE, ids=lambda patch: next(iter(patch.targets)))
def test_each_says_why_and_until_when(patch: Patch) -> None:
    assert patch.issue and patch.until
    if patch.until.startswith("tests/"):
        file, _, test = patch.until.partition("::")
        assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8")


def row(target: str, *, needed: bool) -> Patch:
    return Patch(targets={target: "saves:save_on_chief"}, issue="", until="", needed=needed)


NOWHERE = ("keras.gone:name", "keras:gone", "keras:Model.gone", "keras.utils:set_random_seed")


@pytest.mark.parametrize("target", NOWHERE)
def test_what_has_no_place_is_done_without(target: str, capfd: pytest.CaptureFixture) -> None:
    apply([row(target, needed=False)])
    (line,) = (each for each in capfd.readouterr().err.splitlines() if each.startswith("tfrun"))
    assert "is left out" in line and target in line


def test_all_that_is_needed_and_has_no_place_is_named() -> None:
    with pytest.raises(TypeError) as error:
        apply([row(target, needed=True) for target in NOWHERE])
    assert "takes (seed), tfrun's (model, filepath, args, kwargs)" in str(error.value)
    assert all(word in str(error.value) for word in ("keras.gone", "'keras'", "'Model'"))


def given(x, y=1): ...


@pytest.mark.parametrize(
    ("ours", "good"),
    [
        (given, True),
        (lambda x, y: ..., False),  # it may be called without y
        (lambda x: ..., False),
        (lambda y=1, x=2: ..., False),
        (lambda x, **others: ..., False),  # it may be called with y in its place
        (lambda *all, **others: ..., True),
        (lambda x, *rest, **others: ..., True),
        (lambda first, *rest, **others: ..., False),  # nor with x by its name
        (lambda x, y=1, z=2: ..., True),
        (lambda x, y=1, *, z: ..., False),
    ],
)
def test_a_function_stands_for_another_if_it_takes_all_that_it_is_called_with(ours, good) -> None:
    assert fits(ours, given) == good
