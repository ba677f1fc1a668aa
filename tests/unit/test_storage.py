"""Objects at URLs, against real servers of S3 and Google Cloud Storage, and with their faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from gcsfs.retry import HttpError

import object_servers
from object_servers import BUCKET
from tfrun.job.errors import TfrunError, UsageError
from tfrun.storage import lease, url
from tfrun.storage.failures import Kind, kind_of
from tfrun.storage.lease import Lease, Stand, Watch
from tfrun.storage.objects import Objects


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ("checkpoints", "checkpoints"),
        ("/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("FILE:///a", "/a"),
        ("./s3:/b", "./s3:/b"),
        ("s3://b/x/y/", "s3://b/x/y"),
        ("s3a://b", "s3://b"),
        ("gcs://b/x", "gs://b/x"),
    ],
)
def test_what_a_person_states(stated, found):
    assert url.normal(stated, where="--x") == found


@pytest.mark.parametrize(
    "stated",
    [
        *("http://a/b", "s3://", "s3:///x", "s3://b//x", "file://x", "s3://b/../x", "s3://b?v"),
        *("s3:/b/x", "S3:b/x", "gs:/b", "file:/a"),  # which would be directories here
    ],
)
def test_what_is_refused(stated):
    with pytest.raises(UsageError, match="TFRUN-105"):
        url.normal(stated, where="--x")


def _run(code: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, timeout=60, check=False)


def test_fsspec_is_not_imported_for_paths():
    code = (
        "import sys, tfrun.cli.main, tfrun.cli.run, tfrun.checkpoint.remote_directory, "
        "tfrun.agent.agent, tfrun.storage.lease\n"
        "sys.exit(' '.join({'fsspec', 's3fs', 'gcsfs', 'botocore'} & set(sys.modules)) or None)"
    )
    done = _run(code)
    assert done.returncode == 0, done.stderr


def test_a_package_that_is_not_installed():
    code = (
        "import sys; sys.modules['s3fs'] = None\n"
        "from tfrun.storage.objects import Objects\n"
        "Objects('s3://b').list()"
    )
    done = _run(code)
    assert b"TFRUN-704" in done.stderr and b"pip install 'tfrun[s3]'" in done.stderr


def test_list_read_write_remove(objects, tmp_path):
    assert objects.list() == {}
    objects.write("a/one", b"1")
    objects.write("a/two", b"22")
    objects.write("b", b"")
    assert {name: entry.size for name, entry in objects.list().items()} == {
        "a/one": 1,
        "a/two": 2,
        "b": 0,
    }
    before = objects.list("a/")
    assert list(before) == ["a/one", "a/two"]
    objects.write("a/one", b"3")
    assert objects.list("a/")["a/one"] != before["a/one"]
    assert objects.read("a/one") == b"3"
    objects.fetch("a/two", tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == b"22"
    with pytest.raises(FileNotFoundError):
        objects.read("none")
    objects.copy("a/two", Objects(f"{objects.url}-other"))
    objects.remove(["a/one", "a/two", "b", "none"])
    assert objects.list() == {}
    assert Objects(f"{objects.url}-other").read("a/two") == b"22"


@pytest.mark.net
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # gcsfs's, to aiohttp
def test_a_large_file_goes_in_parts(objects, tmp_path):
    content = os.urandom(1 << 20) * 101  # beyond what both packages send at once
    (tmp_path / "large").write_bytes(content)
    objects.put("large", tmp_path / "large")
    objects.fetch("large", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == content
    objects.remove(["large"])


def test_only_the_first_creates(objects):
    assert objects.create("lock", b"first")
    if objects.url.startswith("s3"):  # the emulator of the other knows no conditions
        assert not objects.create("lock", b"second")
        assert objects.read("lock") == b"first"


def test_a_missing_bucket(objects):
    other = Objects(objects.url.replace(BUCKET, "nowhere"), patience=1)
    for ask in (other.list, lambda: other.write("a", b"")):
        with pytest.raises(TfrunError, match=r"TFRUN-704.*no such bucket"):
            ask()


def test_missing_credentials(servers, monkeypatch):
    with object_servers.in_environment(servers["s3"]):
        for name in object_servers.S3_KEYS:
            del os.environ[name]
        monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        with pytest.raises(TfrunError, match=r"TFRUN-704.*no valid credentials.*AWS_PROFILE"):
            Objects(f"s3://{BUCKET}/x", patience=1).write("a", b"")


def test_denied_is_not_tried_again(faults):
    faults.answers = lambda method, path: "deny"
    with pytest.raises(TfrunError, match=r"TFRUN-704.*access is denied.*the right to"):
        Objects(f"s3://{BUCKET}/x").write("a", b"")
    assert len(faults.seen) == 1


@pytest.mark.parametrize("kind", ["throttle", "cut"])
def test_what_is_tried_again(faults, kind):
    objects, left = Objects(f"s3://{BUCKET}/{kind}"), [kind] * 5
    faults.answers = lambda method, path: left.pop() if left and method == "PUT" else ""
    objects.write("a", b"1")
    assert not left and objects.read("a") == b"1"


@pytest.mark.parametrize("kind", ["throttle", "cut"])
def test_what_does_not_end_has_a_deadline(faults, kind):
    faults.answers = lambda method, path: kind
    with pytest.raises(TfrunError, match=r"TFRUN-704.*does not answer"):
        Objects(f"s3://{BUCKET}/x", patience=1).read("a")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError("x"), Kind.DENIED),
        (FileNotFoundError("x"), Kind.MISSING),
        (ConnectionResetError(), Kind.TRANSIENT),
        (TimeoutError(), Kind.TRANSIENT),
        (OSError(16, "SlowDown"), Kind.TRANSIENT),
        (OSError("Forbidden: https://x"), Kind.DENIED),
        (HttpError({"code": 401, "message": "Anonymous caller"}), Kind.CREDENTIALS),
        (HttpError({"code": 403, "message": "no"}), Kind.DENIED),
        (HttpError({"code": 429, "message": "slow"}), Kind.TRANSIENT),
        (HttpError({"code": 503, "message": "later"}), Kind.TRANSIENT),
        (ValueError("x"), Kind.OTHER),
    ],
)
def test_what_an_error_means(error, kind):
    assert kind_of(error) is kind


def test_one_holds_a_lease(objects):
    first, second = Lease(objects, ".lock"), Lease(objects, ".lock")
    assert first.acquire() and first.acquire()
    assert first.holds and not second.holds
    assert not second.acquire() and second.watch.stand is Stand.HELD
    assert f"process {os.getpid()} on" in second.watch.who
    first.release()
    assert second.acquire()
    second.release()
    assert objects.list() == {}


def test_a_dead_process_holds_none(objects):
    code = (
        "import os, signal, sys\n"
        "from tfrun.storage.lease import Lease\n"
        "from tfrun.storage.objects import Objects\n"
        "assert Lease(Objects(sys.argv[1]), '.lock').acquire()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, objects.url], timeout=60, check=False)
    assert list(objects.list()) == [".lock"]
    mine = Lease(objects, ".lock")
    assert mine.acquire() and mine.watch.stand is Stand.GONE
    mine.release()


def test_a_lease_of_another_machine_is_over_when_nobody_renews_it(objects, monkeypatch):
    """Nobody can see whether its process lives."""
    monkeypatch.setattr(lease, "STALE_SECONDS", 0.3)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.05)
    told = b'{"who": "process 1 on far", "token": "x", "machine": "far", "renewals": %d}'
    objects.write(".lock", told % 1)
    watch, said = Watch(objects, ".lock"), []
    assert watch.look() is Stand.UNKNOWN
    objects.write(".lock", told % 2)
    assert watch.look() is Stand.HELD
    assert watch.until_known(lambda: said.append(watch.who)) is Stand.GONE
    assert said == ["process 1 on far"]


def test_a_lease_is_renewed(objects, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    mine = Lease(objects, ".lock")
    assert mine.acquire()
    watch = Watch(objects, ".lock")
    before = objects.read(".lock")
    for _ in range(200):
        if objects.read(".lock") != before:
            break
    assert objects.read(".lock") != before and watch.look() is Stand.HELD
    mine.release()
