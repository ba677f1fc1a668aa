"""Modules that are executed when somebody first wants something of them."""

import importlib
import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tfrun.worker.deferred_imports import deferred
from tfrun.worker.preload import unneeded

LATE = """
import os, sys
runs = int(os.environ["RUNS"]) + 1
os.environ["RUNS"] = str(runs)
if "FAILS" in os.environ:
    raise ImportError("not today")
from parcel.late.inner import thing
seen = hasattr(sys.modules[__name__], "unheard")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a package `parcel` whose module `late` counts its executions; forgets it again."""
    folder = tmp_path / "parcel"
    folder.mkdir()
    (folder / "__init__.py").write_text("from parcel import late as late\n")
    (folder / "late").mkdir()
    (folder / "late" / "__init__.py").write_text(LATE)
    (folder / "late" / "inner.py").write_text("thing = 'a thing'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RUNS", "0")
    yield lambda: importlib.import_module("parcel")
    for name in [name for name in sys.modules if name.partition(".")[0] == "parcel"]:
        del sys.modules[name]


def runs() -> int:
    return int(os.environ["RUNS"])


def load(package):
    with deferred({"parcel.late"}):
        return package()


def test_it_is_executed_by_the_first_look_and_only_then(package):
    late = load(package).late
    assert runs() == 0
    assert late.thing == "a thing"
    assert (runs(), late.runs, late.seen) == (1, 1, False)
    assert late.thing == "a thing" and runs() == 1
    assert "__getattr__" not in vars(late)
    assert not any(type(finder).__module__ == deferred.__module__ for finder in sys.meta_path)


def test_it_looks_like_itself_before(package):
    late = load(package).late
    assert late.__name__ == "parcel.late"
    assert Path(late.__file__).name == "__init__.py"
    assert late.__spec__.submodule_search_locations
    assert inspect.getmodule(inspect.currentframe())  # which goes through all modules
    assert runs() == 0


@pytest.mark.parametrize(
    "code",
    [
        "from parcel.late import thing",
        "from parcel.late import *",
        "import parcel.late as l; l.thing",
    ],
)
def test_all_kinds_of_imports_find_what_is_in_it(package, code: str):
    load(package)
    exec(code, {})
    assert runs() == 1


def test_a_submodule_is_imported_without_it(package):
    load(package)
    assert importlib.import_module("parcel.late.inner").thing == "a thing"
    assert runs() == 0


def test_dir_shows_what_it_has(package):
    assert "thing" in dir(load(package).late)


def test_what_it_has_not_is_an_attribute_error(package):
    late = load(package).late
    with pytest.raises(AttributeError, match=r"module 'parcel\.late' has no attribute 'other'"):
        _ = late.other
    with pytest.raises(AttributeError, match="other"):
        _ = late.other
    assert runs() == 1


def test_an_error_is_the_importers_and_the_next_look_tries_again(package, monkeypatch):
    late = load(package).late
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(ImportError, match="not today"):
        _ = late.thing
    monkeypatch.delenv("FAILS")
    assert late.thing == "a thing"
    assert runs() == 2


def test_two_threads_that_look_at_once_both_find_it(package):
    late = load(package).late
    found = []
    threads = [threading.Thread(target=lambda: found.append(late.thing)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["a thing"] * 8
    assert runs() == 1


def test_outside_the_block_nothing_is_deferred(package):
    with deferred({"parcel.late"}):
        pass
    package()
    assert runs() == 1


def test_keras_extras_are_deferred_for_a_script_without_them_and_work(tmp_path: Path):
    """Fails when Keras puts them elsewhere: matplotlib and scikit-learn are imported again."""
    (tmp_path / "train.py").write_text("import numpy\n")
    code = """if True:
        import gc, sys
        from tfrun.worker.preload import preload
        preload(sys.argv[1])
        heavy = {"matplotlib", "sklearn", "pandas"}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
        assert gc.isenabled() and gc.get_freeze_count() > 100_000
        import keras
        import tensorflow as tf
        assert keras.wrappers.SKLearnClassifier.__name__ == "SKLearnClassifier"
        assert tf.keras.wrappers.SKLearnRegressor is keras.wrappers.SKLearnRegressor
        from keras.visualization import plot_image_gallery
        assert plot_image_gallery.__module__ == "keras.src.visualization.plot_image_gallery"
        assert "draw_bounding_boxes" in dir(tf.keras.visualization)
    """
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "train.py")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_what_is_deferred_follows_from_what_the_script_imports(tmp_path: Path):
    parts = {}
    for name, text in (("plain", "import numpy"), ("plots", "import matplotlib.pyplot as plt")):
        (tmp_path / name).write_text(text)
        parts[name] = {module.split(".")[-1] for module in unneeded(str(tmp_path / name))}
    assert parts == {"plain": {"visualization", "wrappers"}, "plots": {"wrappers"}}
    assert unneeded(None) == frozenset()
