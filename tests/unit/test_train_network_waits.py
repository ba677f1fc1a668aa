"""How long the network holds up a process's sending, by what the kernel says."""

from __future__ import annotations

import json
import socket
import struct
import sys

import pytest

from conftest import wait_until
from tfrun.train.network_waits import Network, Sent, address_of, held_up, other_hosts, read_info


def sent(megabytes: float, seconds: float) -> Sent:
    return Sent(bytes=int(megabytes * 1e6), rate=0, seconds=seconds)


def test_a_narrow_link_takes_as_long_as_its_bytes_need():
    # Seen with 50 Mbit/s: 5.33 MB in a step, of which the kernel says 0.9 s.
    assert held_up(sent(0, 0), sent(5.33, 0.898), 5_970_000) == pytest.approx(0.893, abs=0.001)


def test_a_late_acknowledgement_is_no_narrow_link():
    # Seen without a limit: an acknowledgement that is 40 ms late keeps the connection "busy".
    assert held_up(sent(10, 1), sent(10.5, 1.081), 1_200_000_000) < 0.001


def test_a_rate_that_was_hardly_measured_takes_no_longer_than_anything_was_on_its_way():
    assert held_up(sent(0, 0), sent(1, 0.010), 500) == pytest.approx(0.010)
    assert held_up(sent(0, 0), sent(1, 0.010), 0) == 0


def test_a_receiver_that_is_full_is_not_the_network():
    info = bytearray(232)
    info[0] = 1
    struct.pack_into("Q", info, 120, 7)
    struct.pack_into("QQQ", info, 160, 1000, 5_000_000, 4_000_000)
    assert read_info(bytes(info)) == Sent(bytes=7, rate=1000, seconds=1.0)
    info[0] = 10  # it listens
    assert read_info(bytes(info)) is None
    assert read_info(bytes(104)) is None  # of an old kernel


def test_the_clusters_other_machines():
    workers = ["127.0.0.1:4000", "10.0.0.2:4000", "10.0.0.2:4001", "[fd00::7]:4000", "localhost:1"]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 1}}
    assert other_hosts({"TF_CONFIG": json.dumps(config)}) == {"fd00::7"}
    for text in ("", "{}", "[", '{"cluster": {}, "task": 1}', '{"cluster": {"worker": [1]}}'):
        assert other_hosts({"TF_CONFIG": text}) == set()


def test_addresses():
    four = struct.pack("HH4s", socket.AF_INET, 0, bytes([10, 0, 0, 2]))
    assert address_of(four) == "10.0.0.2"
    mapped = socket.inet_pton(socket.AF_INET6, "::ffff:10.0.0.3")
    assert address_of(struct.pack("HHI16sI", socket.AF_INET6, 0, 0, mapped, 0)) == "10.0.0.3"
    assert address_of(b"") == address_of(struct.pack("H4s", socket.AF_UNIX, b"/a")) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's TCP")
def test_a_connection_of_this_process_is_found_and_left_as_it_is():
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        network = Network({"127.0.0.1"})
        assert network.seconds() == (0.0, "127.0.0.1")  # both ends are this process's
        ours.sendall(bytes(100_000))
        left = 100_000
        while left:
            left -= len(theirs.recv(left))
        wait_until(lambda: sent_by(network) >= 100_000, "the kernel's numbers are seen", 10)
        found = network.seconds()
        assert found is not None and 0 <= found[0] < 5
        assert network.seconds() == (0.0, "127.0.0.1")
        assert ours.gettimeout() is None and ours.getblocking()
        assert Network({"10.9.9.9"}).seconds() is None
    assert Network(set()).seconds() is None


def sent_by(network: Network) -> int:
    network.sample()
    return max(connection.now.bytes for connection in network._connections.values())
