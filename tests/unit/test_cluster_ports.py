"""Reserved ports: nobody else gets them, TensorFlow's server does."""

from __future__ import annotations

import errno
import multiprocessing
import os
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tfrun.cluster import ports
from tfrun.cluster.ports import PortReservation, check_free
from tfrun.job.errors import TfrunError, UsageError

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shares a bound port")


def listener(port: int = 0, *, reuse: bool, host: str = "") -> socket.socket:
    server = socket.socket()
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
        server.bind((host, port))
        server.listen()
    except OSError:
        server.close()
        raise
    return server


def test_many_threads_never_get_the_same_port():
    with ThreadPoolExecutor(16) as pool:
        held = list(pool.map(lambda _: PortReservation(25), range(40)))
    numbers = [port for reservation in held for port in reservation.ports]
    for reservation in held:
        reservation.close()
    assert len(set(numbers)) == len(numbers) == 1000


def _reserve_in_child(connection) -> None:
    with PortReservation(50) as reservation:
        connection.send(reservation.ports)
        connection.recv()  # holds them until all have theirs


def test_many_processes_never_get_the_same_port():
    context = multiprocessing.get_context("spawn")
    children = []
    for _ in range(6):
        mine, theirs = context.Pipe()
        process = context.Process(target=_reserve_in_child, args=(theirs,))
        process.start()
        children.append((process, mine))
    numbers = [port for _, pipe in children for port in pipe.recv()]
    for process, pipe in children:
        pipe.send("go")
        process.join(30)
        assert process.exitcode == 0
    assert len(set(numbers)) == len(numbers) == 300


@linux
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_server_with_reuseaddr_listens_on_a_reserved_port(family):
    if family not in ports._families():
        pytest.skip("this machine has no IPv6")
    with PortReservation(1) as reservation, socket.socket(family) as server:
        reservation.release_for_use()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", reservation.ports[0]))  # IPv6 is dual-stack here, as gRPC's is
        server.listen()
        with socket.create_connection(("127.0.0.1", reservation.ports[0]), timeout=5):
            peer, _ = server.accept()
            peer.close()


@linux
def test_a_server_that_does_not_share_is_refused():
    with PortReservation(1) as reservation, pytest.raises(OSError, match="in use"):
        listener(reservation.ports[0], reuse=False)


@linux
@pytest.mark.parametrize("reuse", [0, 1])
def test_neither_bind_nor_connect_gets_a_reserved_port(reuse):
    # Left only the reserved port to choose from, the kernel must say that there is none.
    with PortReservation(1) as reservation, listener(reuse=True, host="127.0.0.1") as server:
        (port,) = reservation.ports
        for ask in (lambda s: s.bind(("", 0)), lambda s: s.connect(server.getsockname())):
            with _confined(port) as other, pytest.raises(OSError) as caught:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
                ask(other)
            assert caught.value.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
    with _confined(port) as other:  # and when it is given back, that very one
        other.bind(("", 0))
        assert other.getsockname()[1] == port


def _confined(port: int) -> socket.socket:
    """Returns a socket for which `port` is the only ephemeral port."""
    ip_local_port_range = 51  # Linux 6.3; the socket module has no name for it yet
    confined = socket.socket()
    try:
        confined.setsockopt(socket.IPPROTO_IP, ip_local_port_range, struct.pack("HH", port, port))
    except OSError:
        confined.close()
        pytest.skip("this kernel has no IP_LOCAL_PORT_RANGE")
    return confined


def test_closing_gives_the_ports_back():
    with PortReservation(1) as reservation:
        (port,) = reservation.ports
    listener(port, reuse=False).close()
    check_free(port)


def test_where_ports_are_not_shared_they_are_let_go_before_use(monkeypatch):
    monkeypatch.setattr(ports, "_SHARES_BOUND_PORT", False)
    with PortReservation(1) as reservation:
        reservation.release_for_use()
        listener(reservation.ports[0], reuse=False).close()


@linux
def test_ports_are_kept_while_in_use():
    with PortReservation(1) as reservation:
        reservation.release_for_use()
        with pytest.raises(OSError, match="in use"):
            listener(reservation.ports[0], reuse=False)


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_a_port_in_use_is_refused_with_the_name_of_its_process(host):
    with listener(reuse=True, host=host) as server:
        port = server.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            check_free(port, where="TF_CONFIG cluster.worker[0]")
    assert caught.value.code == "TFRUN-208"
    assert caught.value.where == "TF_CONFIG cluster.worker[0]"
    assert f"port {port}" in caught.value.what
    if sys.platform == "linux":
        assert f"{psutil.Process().name()} (pid {os.getpid()})" in caught.value.what


def test_an_ipv6_listener_counts_too():
    if socket.AF_INET6 not in ports._families():
        pytest.skip("this machine has no IPv6")
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind(("::1", 0))
        server.listen()
        with pytest.raises(UsageError, match="TFRUN-208"):
            check_free(server.getsockname()[1])


def test_a_machine_without_free_ports_is_told_so():
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, limit[1]))
    try:
        with pytest.raises(TfrunError, match="TFRUN-208"):
            PortReservation(1000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    PortReservation(50).close()  # what the failed one had is given back
