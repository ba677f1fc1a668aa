"""Which packages a script imports, as far as its text says."""

from pathlib import Path

from tfrun.worker.preload import MAX_FILES, imported_by

SCRIPT = '''
"""import nothing"""
import os, sys as system
import scipy.stats
from sklearn.datasets import load_digits
def late():
\tfrom  matplotlib import pyplot
    import beside
# import commented
important = 1
'''


def test_it_sees_imports_wherever_they_stand_and_those_of_files_beside(tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("import pandas\nimport train\nfrom models import net\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "__init__.py").write_text("import torch\n")
    found = imported_by(tmp_path / "train.py")
    assert found >= {"os", "sys", "scipy", "sklearn", "matplotlib", "beside", "pandas", "torch"}
    assert not found & {"commented", "important", "ant", "stats", "load_digits"}


def test_what_cannot_be_read_imports_nothing(tmp_path: Path):
    assert imported_by(tmp_path / "missing.py") == frozenset()
    assert imported_by(tmp_path) == frozenset()


def test_it_ends_in_a_directory_of_any_size(tmp_path: Path):
    for number in range(MAX_FILES + 50):
        (tmp_path / f"part{number}.py").write_text(f"import part{number + 1}\n")
    assert f"part{MAX_FILES - 1}" in imported_by(tmp_path / "part0.py")
    assert f"part{MAX_FILES + 10}" not in imported_by(tmp_path / "part0.py")


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path):
    (tmp_path / "train.py").write_bytes(b"\xff\xfe\x00\nimport scipy\n")
    assert imported_by(tmp_path / "train.py") == {"scipy"}
