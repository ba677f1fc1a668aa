"""Real servers of object storage, for tests: moto's S3 and gcp-storage-emulator."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

S3_KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
START_SECONDS = 30.0
BUCKET = "bucket"  # of the tests of single functions
PIECES, PAUSE = 5, 0.6


class Server:
    """A server on loopback that can be stopped and come back; what it holds is lost then.

    Attributes:
      environment: by which clients find it.
    """

    def __init__(self, command: list[str], port: int, environment: dict[str, str]) -> None:
        self._command, self.port, self.environment = command, port, environment
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        """Starts it and waits until it accepts connections."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        until = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert time.monotonic() < until and self._process.poll() is None, self.log()
            time.sleep(0.05)

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None
            self._log.close()


@contextlib.contextmanager
def silent() -> Iterator[dict[str, str]]:
    """A server that accepts connections, and neither reads nor answers; yields its environment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        yield {
            **S3_KEYS,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": address,
            "STORAGE_EMULATOR_HOST": address,
        }


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def s3(*buckets: str) -> Iterator[Server]:
    """An S3 server, with these buckets."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    region = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": address}
    environment = {**S3_KEYS, **region, "AWS_EC2_METADATA_DISABLED": "true"}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = Server(command, port, environment)
    server.start()
    try:
        for bucket in buckets:
            client_of(server).create_bucket(Bucket=bucket)
        yield server
    finally:
        server.stop()


def client_of(server: Server):
    """Returns a client of boto3, which is no part of tfrun."""
    import botocore.session

    keys = server.environment
    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=keys["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


@contextlib.contextmanager
def gcs(bucket: str) -> Iterator[Server]:
    """A server of Google Cloud Storage, with this bucket."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "gcp_storage_emulator", "start", "--host=127.0.0.1"),
        *(f"--port={port}", "--in-memory", f"--default-bucket={bucket}"),
    ]
    server = Server(command, port, {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}"})
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Faults:
    """A proxy before a server, on loopback, which answers some requests itself.

    Attributes:
      answers: takes the method and the path of each request; returns what to do: "deny",
        "throttle", "cut" (the connection is closed in the midst), "slow" (its answer comes in
        `PIECES`, with `PAUSE` seconds between them), or "" to hand it on.
      seen: method and path of all requests.
    """

    def __init__(self, server: Server) -> None:
        self.answers: Callable[[str, str], str] = lambda method, path: ""
        self.seen: list[tuple[str, str]] = []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                proxy.seen.append((self.command, self.path))
                kind = proxy.answers(self.command, self.path)
                if kind == "cut":
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if kind in _ANSWERS:
                    code, status = _ANSWERS[kind]
                    self._answer(status, {}, f"<Error><Code>{code}</Code></Error>".encode())
                    return
                onward = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
                try:
                    onward.request(self.command, self.path, body, dict(self.headers))
                    found = onward.getresponse()
                    pieces = PIECES if kind == "slow" else 1
                    self._answer(found.status, dict(found.getheaders()), found.read(), pieces)
                finally:
                    onward.close()

            def _answer(
                self, status: int, headers: dict[str, str], body: bytes, pieces: int = 1
            ) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                is_head = self.command == "HEAD"
                length = headers.get("Content-Length", "0") if is_head else str(len(body))
                self.send_header("Content-Length", length)
                self.end_headers()
                if is_head:
                    return
                size = len(body) // pieces + 1
                for number in range(pieces):
                    self.wfile.write(body[number * size : (number + 1) * size])
                    if number + 1 < pieces:
                        time.sleep(PAUSE)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._proxy.daemon_threads = True
        address = f"http://127.0.0.1:{self._proxy.server_port}"
        names = {"AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"} & set(server.environment)
        self.environment = {**server.environment, **dict.fromkeys(names, address)}
        self._thread = threading.Thread(target=self._proxy.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()
        self._thread.join(10)


_ANSWERS = {"deny": ("AccessDenied", 403), "throttle": ("SlowDown", 503)}


@contextlib.contextmanager
def in_environment(server: Server | Faults) -> Iterator[None]:
    """This process is a client of the server."""
    before = dict(os.environ)
    os.environ.update(server.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
