"""What is refused before anything starts."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tfrun.job.errors import UsageError
from tfrun.job.spec import Program
from tfrun.job.start_checks import check_program, check_tensorflow


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(target: str, *, is_module: bool = False) -> str:
    with pytest.raises(UsageError) as caught:
        check_program(Program(target=target, is_module=is_module))
    assert caught.value.code == ("TFRUN-102" if is_module else "TFRUN-101")
    assert len(str(caught.value)) < 500
    return str(caught.value)


def test_scripts(here: Path) -> None:
    (here / "train.py").write_text("")
    check_program(Program(target="train.py"))
    (here / "link").symlink_to("train.py")
    check_program(Program(target="link"))


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("missing.py", "does not exist"),
        ("missing/train.py", "does not exist"),
        (".", "is a directory"),
        ("", "does not exist"),
        ("/dev/null", "cannot be read"),
        ("a" * 5000, "does not exist"),
        ("a\x00b", "does not exist"),
        ("dangling", "does not exist"),
        ("loop", "does not exist"),
        ("file/train.py", "does not exist"),
    ],
    ids=lambda text: f"{text!r:.20}",
)
def test_what_is_no_script(here: Path, target: str, told: str) -> None:
    (here / "dangling").symlink_to("nowhere")
    (here / "loop").symlink_to("loop")
    (here / "file").write_text("")
    assert told in refused(target)


@pytest.mark.skipif(os.geteuid() == 0, reason="permission bits do not bind root")
def test_a_script_without_permission(here: Path) -> None:
    (here / "secret.py").write_text("")
    (here / "secret.py").chmod(0)
    assert "cannot be read" in refused("secret.py")


def test_modules(here: Path) -> None:
    (here / "package" / "inner").mkdir(parents=True)
    for file in ("package/__main__.py", "package/part.py", "package/inner/deep.py", "single.py"):
        (here / file).write_text("")
    (here / "json").mkdir()  # no package of its own: the library's is found
    for name in ("package", "package.part", "package.inner.deep", "single", "json.tool", "this"):
        check_program(Program(target=name, is_module=True))


@pytest.mark.parametrize(
    "name",
    ["nowhere", "", ".", "..", ".a", "a.", "json..tool", "a b", "train.py/", "1a", "__main__"]
    + ["a" * 5000, "nowhere.part", "package", "package.missing", "single.part", "json.missing"]
    + ["sys.path"],
    ids=lambda text: f"{text!r:.20}",
)
def test_what_is_no_module(here: Path, name: str) -> None:
    (here / "package").mkdir()
    (here / "package" / "__init__.py").write_text("")
    (here / "single.py").write_text("")
    assert "does not exist" in refused(name, is_module=True)


def test_a_file_that_is_given_as_a_module_gets_a_hint(here: Path) -> None:
    (here / "train.py").write_text("")
    assert "Leave out -m to run the file, or write -m train." in refused("train.py", is_module=True)


def test_a_module_is_looked_up_without_running_it(here: Path) -> None:
    (here / "bomb").mkdir()
    (here / "bomb" / "__init__.py").write_text("raise SystemExit('imported')")
    (here / "bomb" / "part.py").write_text("raise SystemExit('imported')")
    check_program(Program(target="bomb.part", is_module=True))


def install(directory: Path, name: str, version: str) -> None:
    """Puts a package's metadata there as pip would."""
    info = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_tensorflow_of_this_machine_is_good() -> None:
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    check_tensorflow()


@pytest.mark.parametrize(
    ("name", "version", "good"),
    [
        ("tensorflow", "2.18.0", True),
        ("tensorflow-cpu", "2.18.0rc1", True),
        ("tensorflow", "2.100.0", True),
        ("tf-nightly", "3.0", True),
        ("tensorflow", "2.17.1", False),
        ("tensorflow-cpu", "1.15.5", False),
        ("tensorflow", "2.9.0", False),
        ("keras", "3.12.0", True),
        ("keras", "4.0", True),
        ("keras", "3.11.3", False),  # Keras's trainers had other parts
        ("keras", "2.15.0", False),
    ],
)
def test_versions(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str, good: bool
) -> None:
    for package in ("tensorflow", "keras"):
        (here / "site" / package).mkdir(parents=True)
        (here / "site" / package / "__init__.py").write_text("raise SystemExit('imported')")
    install(here / "site", name, version)
    # Only this directory, so that the real TensorFlow is not seen.
    monkeypatch.setattr("sys.path", [str(here / "site")])
    monkeypatch.setattr("sys.path_importer_cache", {})
    if good:
        check_tensorflow()
        return
    with pytest.raises(UsageError) as caught:
        check_tensorflow()
    assert caught.value.code == "TFRUN-106"
    assert f"{name} {version} is too old" in str(caught.value)
    assert ("3.12" if name == "keras" else "2.18") in str(caught.value)
