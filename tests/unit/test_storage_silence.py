"""A storage that accepts connections and does not answer, or slowly: deadlines that are kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import object_servers
from object_servers import BUCKET, PAUSE, PIECES
from tfrun.job.errors import TfrunError
from tfrun.storage import objects as objects_module
from tfrun.storage.objects import Objects

SCHEMES = pytest.mark.parametrize("scheme", ["s3", "gs"])
CHECK = """
import sys
from tfrun.checkpoint import remote_directory
from tfrun.storage import long_waits
remote_directory.CHECK_SECONDS, long_waits.SAY_SECONDS = float(sys.argv[2]), 0.1
remote_directory.RemoteDirectory(sys.argv[1]).check(lambda text: print(text, flush=True))
"""
LOOKS_UP = """
import asyncio, sys, threading
from fsspec.asyn import get_loop
from tfrun.storage.objects import Objects
try:
    Objects(sys.argv[1], patience=0.1).list()
except Exception:
    pass
for_ever, has_begun = threading.Event(), threading.Event()
def look():
    has_begun.set()
    for_ever.wait()
async def look_up():
    await asyncio.get_running_loop().run_in_executor(None, look)
asyncio.run_coroutine_threadsafe(look_up(), get_loop())
assert has_begun.wait(30)
print("looking up", flush=True)
"""


def _start(code: str, *args: str, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@SCHEMES
def test_the_check_ends_when_it_says_and_so_does_the_process(scheme):
    """gs:// was given up after 31 s, and s3:// never, where 20 were said."""
    with (
        object_servers.silent() as env,
        _start(CHECK, f"{scheme}://{BUCKET}/x", "1", env=env) as process,
    ):
        out, err = process.communicate(timeout=20)
    assert out == f"waiting up to 1 s for {scheme}://{BUCKET}/x, which does not answer\n"
    assert "TFRUN-704" in err and "does not answer (TimeoutError: no answer within 1 s)" in err
    assert err.rstrip().endswith("STORAGE_EMULATOR_HOST).") and process.returncode == 1


@SCHEMES
def test_ctrl_c_ends_the_check(scheme):
    with (
        object_servers.silent() as env,
        _start(CHECK, f"{scheme}://{BUCKET}/x", "300", env=env) as process,
    ):
        assert process.stdout and "waiting up to 300 s" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert err.rstrip().endswith("KeyboardInterrupt")


@SCHEMES
def test_a_process_ends_while_a_name_is_looked_up(scheme):
    """Where no name server answers, Python waited for asyncio's threads for 40 more seconds."""
    with object_servers.silent() as env:
        refused = dict.fromkeys(("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"), "http://127.0.0.1:1")
        with _start(LOOKS_UP, f"{scheme}://{BUCKET}/x", env={**env, **refused}) as process:
            out, err = process.communicate(timeout=20)
    assert (out, process.returncode) == ("looking up\n", 0), err


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # gcsfs's, to aiohttp
@SCHEMES
@pytest.mark.parametrize("size", [1, 30_000_000])
def test_a_write_that_hangs_has_a_deadline(scheme, size, monkeypatch, tmp_path):
    """Time-outs of a request begin when all of it has been sent."""
    monkeypatch.setattr(objects_module, "READ_SECONDS", 1)
    monkeypatch.setattr(objects_module, "SLOWEST", 100_000_000)
    (tmp_path / "a").write_bytes(bytes(size))
    began = time.monotonic()
    with object_servers.silent() as env:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        objects = Objects(f"{scheme}://{BUCKET}/x", patience=0.5)
        for write in (
            lambda: objects.write("a", bytes(size)),
            lambda: objects.put("a", tmp_path / "a"),
            lambda: objects.create("a", bytes(size)),
        ):
            with pytest.raises(TfrunError, match=r"TFRUN-704.*does not answer"):
                write()
    assert time.monotonic() - began < 30


@SCHEMES
def test_a_large_object_may_take_its_time(scheme, servers, monkeypatch, tmp_path):
    """Of gs:// an object had to be there after 30 s: at 30 MB/s none was read beyond a gigabyte."""
    monkeypatch.setattr(objects_module, "READ_SECONDS", 1)
    assert PAUSE < 1 < PAUSE * (PIECES - 1)
    proxy, content = object_servers.Faults(servers[scheme]), os.urandom(1 << 19)
    try:
        with object_servers.in_environment(proxy):
            Objects(f"{scheme}://{BUCKET}/slow").write("a", content)
            objects = Objects(f"{scheme}://{BUCKET}/slow", patience=0.1)
            proxy.answers = lambda method, path: "slow" if method == "GET" else ""
            objects.fetch("a", tmp_path / "a")
            assert (tmp_path / "a").read_bytes() == content
            assert objects.read("a") == content
            objects.remove(["a"])
    finally:
        proxy.close()
