"""Addresses: what is accepted, what is refused, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.cluster.address import Address, parse_address
from tfrun.job.errors import UsageError

labels = st.from_regex(r"\A[a-z0-9_]([a-z0-9_-]{0,20}[a-z0-9_])?\Z")
names = st.lists(labels, min_size=1, max_size=4).map(".".join)
hosts = st.one_of(
    names.filter(lambda name: name.replace(".", "").strip("0123456789") != ""),
    st.ip_addresses(v=4).filter(lambda ip: not ip.is_unspecified).map(str),
    st.ip_addresses(v=6).filter(lambda ip: not ip.is_unspecified).map(str),
)
addresses = st.builds(Address, host=hosts, port=st.integers(1, 65535))


@given(addresses)
def test_what_is_written_is_read_again(address):
    assert parse_address(str(address), where="x") == address


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_coded_error(text):
    try:
        address = parse_address(text, where="x")
    except UsageError as error:
        assert error.code == "TFRUN-204" and error.where == "x"
    else:
        assert str(address) == text
        assert address.host and 1 <= address.port <= 65535


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:12345", "localhost", 12345),
        ("host:1", "host", 1),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
        ("[::1]:2222", "::1", 2222),
        ("[fe80::1%eth0]:2222", "fe80::1%eth0", 2222),
        ("my_job_worker_1:2222", "my_job_worker_1", 2222),
        ("w-0.train.default.svc.cluster.local:2222", "w-0.train.default.svc.cluster.local", 2222),
        ("host.example.com.:2222", "host.example.com.", 2222),
        ("0a1b2c3d4e5f:2222", "0a1b2c3d4e5f", 2222),
    ],
)
def test_valid(text, host, port):
    assert parse_address(text, where="x") == Address(host=host, port=port)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "not a string"),
        (2222, "not a string"),
        (["a:1"], "not a string"),
        ("", "empty"),
        ("host", "no port"),
        ("host:", "no port"),
        ("[::1]", "no port"),
        ("[::1]:", "no port"),
        ("[::1]2222", "no port"),
        ("[::1:2222", "closing bracket"),
        ("::1:2222", "without brackets"),
        ("host:1:2", "two ports"),
        (":2222", "no host"),
        ("host:0", "port 0"),
        ("host:000", "port 0"),
        ("host:65536", "over 65535"),
        ("host:123456", "not a number from 1"),
        ("host:-1", "not a number from 1"),
        ("host:+80", "not a number from 1"),
        ("host:http", "not a number from 1"),
        ("host:02222", "not a number from 1"),
        ("host:²", "not a number from 1"),
        ("host:22.5", "not a number from 1"),
        (" host:2222", "white space"),
        ("host:2222\n", "white space"),
        ("host :2222", "not a host name"),
        ("grpc://host:2222", "scheme"),
        ("host/path:2222", "not a host name"),
        ("-host:2222", "not a host name"),
        ("host-:2222", "not a host name"),
        ("a..b:2222", "not a host name"),
        (".:2222", "IPv4"),
        ("hüst:2222", "not a host name"),
        (f"{'a' * 64}:2222", "not a host name"),
        (f"{'a.' * 130}b:2222", "not a host name"),
        ("256.1.1.1:2222", "four numbers"),
        ("10.0.1:2222", "four numbers"),
        ("1234:2222", "four numbers"),
        ("0.0.0.0:2222", "all interfaces"),
        ("[::]:2222", "all interfaces"),
        ("[host]:2222", "not an IPv6 address"),
        ("[10.0.0.1]:2222", "not an IPv6 address"),
    ],
)
def test_refused(value, says):
    with pytest.raises(UsageError) as caught:
        parse_address(value, where="TF_CONFIG cluster.worker[1]")
    assert caught.value.code == "TFRUN-204"
    assert caught.value.where == "TF_CONFIG cluster.worker[1]"
    assert says in caught.value.what


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("host:1", "HOST:1", True),
        ("host:1", "host.:1", True),
        ("localhost:1", "127.0.0.1:1", True),
        ("localhost:1", "[::1]:1", True),
        ("[fd00::1]:1", "[fd00:0::1]:1", True),
        ("host:1", "host:2", False),
        ("localhost:1", "localhost:2", False),
        ("10.0.0.1:1", "10.0.0.2:1", False),
    ],
)
def test_identity_is_the_place_and_not_the_spelling(one, other, same):
    identities = [parse_address(text, where="x").identity for text in (one, other)]
    assert (identities[0] == identities[1]) is same
