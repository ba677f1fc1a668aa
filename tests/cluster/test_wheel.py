"""The wheel: what it holds, and that a job runs from nothing but it.

The environment that it is installed into is a fresh one. To be quick it sees TensorFlow and the
other dependencies of the tests' environment, by a .pth file; tests/versions/test_bare_machine.py
downloads them.
"""

from __future__ import annotations

import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from built_wheel import build, command, tracked, train_and_look
from conftest import Jobs
from docs_blocks import ROOT
from tfrun.job.version import __version__

BIN = Path(sysconfig.get_path("scripts"))
DATA = "src/tfrun/observe/page"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the archive of sources."""
    return build(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_every_file_of_the_package_and_no_other(built: tuple[Path, Path]) -> None:
    wheel, _ = built
    assert wheel.name == f"tfrun-{__version__}-py3-none-any.whl"
    about = f"tfrun-{__version__}.dist-info/"
    kinds = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    with zipfile.ZipFile(wheel) as file:
        found = set(file.namelist())
    wanted = {name.removeprefix("src/") for name in tracked("src/tfrun")}
    assert len([name for name in wanted if name.startswith("tfrun/observe/page/")]) > 10
    assert found == wanted | {about + kind for kind in kinds}


def test_what_is_uploaded_is_well_formed(built: tuple[Path, Path]) -> None:
    wheel, archive = built
    said = command(BIN / "twine", "check", "--strict", wheel, archive, cwd=wheel.parent)
    assert said.count("PASSED") == 2
    assert "OK" in command(BIN / "check-wheel-contents", wheel, cwd=wheel.parent)


def test_a_job_and_its_page_run_from_the_wheel_alone(
    built: tuple[Path, Path], jobs: Jobs, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    (site,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
    # Only the folder: a .pth in it, such as that of the tests' tfrun, is not followed.
    (site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # pip compares what the wheel asks for with what is there.
    quiet = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-compile")
    command(python, "-m", "pip", "install", *quiet, f"{built[0]}[cpu]", cwd=tmp_path)

    out, parts = train_and_look(jobs, tmp_path / "venv/bin/tfrun")
    for rank in range(2):
        assert f"rank {rank} of 2 has {site / 'tfrun/__init__.py'}" in out
    parts["page/index.html"] = parts.pop("/")
    assert parts == {f"page/{p.name}": p.read_bytes() for p in (ROOT / DATA).iterdir()}


def test_the_notes_tell_of_this_version() -> None:
    assert f"\n## {__version__}" in (ROOT / "docs/release-notes.md").read_text()


def test_the_release_gets_the_notes_of_its_version_alone(tmp_path: Path) -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())["jobs"]
    (script,) = [step["run"] for step in jobs["notes"]["steps"] if "run" in step]
    *lines, _publish = script.splitlines()
    (tmp_path / "docs").mkdir()
    notes = "# Notes\n## 0.1.0rc1\nnot yet\n## 0.1.0\nthe first\n### More\n## 0.1\nno\n"
    (tmp_path / "docs/release-notes.md").write_text(notes)
    tag = ("env", "GITHUB_REF_NAME=v0.1.0", "bash", "-e", "-o", "pipefail", "-c")
    command(*tag, "\n".join(lines), cwd=tmp_path)
    assert (tmp_path / "notes.md").read_text() == "the first\n### More\n"


WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_as_its_schema_says(path: Path) -> None:
    check = (BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", path)
    assert "ok" in command(*check, cwd=ROOT)


def test_the_workflow_publishes_what_was_checked_and_knows_no_secret() -> None:
    text = (ROOT / ".github/workflows/publish.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert "secrets" not in text and "password:" not in text
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"} and publish["environment"]
    assert publish["needs"] == ["build", "install"]
    others = [job for name, job in jobs.items() if name != "publish"]
    assert not any("id-token" in job.get("permissions", {}) for job in others)
    assert any("make wheel" in step.get("run", "") for step in jobs["build"]["steps"])
    pythons = jobs["install"]["strategy"]["matrix"]["python"]
    classifiers = (ROOT / "pyproject.toml").read_text()
    assert pythons == [v for v in ("3.10", "3.11", "3.12", "3.13") if f":: {v}" in classifiers]
