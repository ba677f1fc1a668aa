"""Host lists and host files: what they mean, and what is refused, with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.cluster.host_lists import Host, parse_hostfile, parse_hosts
from tfrun.cluster.host_ranges import expand, split_list
from tfrun.job.errors import UsageError


def plain(text: str) -> list[tuple[str, int]]:
    return [(host.destination, host.slots) for host in parse_hosts(text)]


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a,b:2,c", [("a", 1), ("b", 2), ("c", 1)]),
        (" a , b:2 ", [("a", 1), ("b", 2)]),
        ("user@host:2", [("user@host", 2)]),
        ("me@corp.example@host", [("me@corp.example@host", 1)]),
        ("n[9-11]:2", [("n9", 2), ("n10", 2), ("n11", 2)]),
        ("n[01-03,07]", [("n01", 1), ("n02", 1), ("n03", 1), ("n07", 1)]),
        ("n[098-101].x", [("n098.x", 1), ("n099.x", 1), ("n100.x", 1), ("n101.x", 1)]),
        ("r[1-2]n[1-2],z", [("r1n1", 1), ("r1n2", 1), ("r2n1", 1), ("r2n2", 1), ("z", 1)]),
        ("10.0.0.[1-2]:4", [("10.0.0.1", 4), ("10.0.0.2", 4)]),
        ("[::1]:2,[fd00::1],u@[fd00::2]:3", [("::1", 2), ("fd00::1", 1), ("u@fd00::2", 3)]),
        ("gpu_box.lan.", [("gpu_box.lan.", 1)]),
    ],
)
def test_lists(text: str, hosts: list[tuple[str, int]]) -> None:
    assert plain(text) == hosts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("a,,b", "entry 2"),
        ("a,", "entry 2"),
        ("a:", "number of slots"),
        ("a:0", "number of slots"),
        ("a:ssh", "~/.ssh/config"),
        ("a:65536", "number of slots"),
        ("a:²", "number of slots"),
        ("a:2:3", "several colons"),
        ("fd00::1", "Write [fd00::1]"),
        ("n[3-1]", "backwards"),
        ("n[1", "no closing bracket"),
        ("n1]", "without an opening one"),
        ("n[]", "in a range"),
        ("n[1-2", "no closing bracket"),
        ("n[a-c]", "in a range"),
        ("n[1-99999999]", "more than 65535"),
        ("n[1-9999]m[1-9999]", "more than 65535"),
        ("-oProxyCommand=x", "not a host"),
        ("u@-x", "not a host"),
        ("-u@x", "user"),
        ("@a", "user"),
        ("a b", "not a host"),
        ("a;b", "not a host"),
        ("a..b", "not a host"),
        ("ä", "not a host"),
        ("10.0.1", "IPv4"),
        ("256.0.0.1", "IPv4"),
        ("x" * 254, "not a host"),
    ],
)
def test_malformed_lists(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hosts(text)
    assert caught.value.code == "TFRUN-209"
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("a,A.", "entry 1", "entry 2"),
        ("n[1-3],x,n2", "entry 1", "entry 3"),
        ("u@a,v@a", "entry 1", "entry 2"),
        ("[fd00::1],[FD00:0::1]", "entry 1", "entry 2"),
    ],
)
def test_a_host_twice(text: str, first: str, second: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hosts(text)
    assert caught.value.code == "TFRUN-210"
    assert first in caught.value.what and second in caught.value.where


def test_a_host_file() -> None:
    text = "# the cluster\na\n\nb slots=2  # two GPUs\nn[1-2]:3\r\n[::1] slots=4\n"
    assert [(h.name, h.slots) for h in parse_hostfile(text, where="f")] == [
        *(("a", 1), ("b", 2), ("n1", 3), ("n2", 3), ("::1", 4)),
    ]


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("a\n\na\n", "TFRUN-210", "first in f, line 1 (in f, line 3)"),
        ("a b", "TFRUN-209", "'b' is not known (in f, line 1)"),
        ("a\nb slots=2 max_slots=4", "TFRUN-209", "(in f, line 2)"),
        ("a slots=", "TFRUN-209", "number of slots"),
        ("a:2 slots=3", "TFRUN-209", "slots twice"),
        ("a,b", "TFRUN-209", "more than one host"),
        ("# nothing\n", "TFRUN-209", "no host"),
    ],
)
def test_a_malformed_host_file(text: str, code: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hostfile(text, where="f")
    assert caught.value.code == code
    assert says in str(caught.value)


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9](\.[a-z]{1,5})?", fullmatch=True)
USERS = st.sampled_from(["", "me", "a.b-c"])
HOSTS = st.builds(Host, name=NAMES, user=USERS, slots=st.integers(1, 65535))


@given(st.lists(HOSTS, min_size=1, max_size=20, unique_by=lambda host: host.identity))
def test_what_is_written_is_read(hosts: list[Host]) -> None:
    written = [f"{host.destination}:{host.slots}" for host in hosts]
    assert list(parse_hosts(",".join(written))) == hosts
    assert list(parse_hostfile("\n".join(written), where="f")) == hosts


@given(st.integers(0, 9999), st.integers(0, 200), st.integers(1, 6))
def test_a_range_is_its_numbers_in_order(low: int, more: int, width: int) -> None:
    names = expand(f"n[{low:0{width}}-{low + more}]x")
    assert [int(name[1:-1]) for name in names] == list(range(low, low + more + 1))
    padded = f"{low:0{width}}".startswith("0")
    assert all(len(name) >= 2 + width for name in names) or not padded


@given(st.text(alphabet="an0123456789[],-:@. \t\n", max_size=30))
def test_any_text_gives_hosts_or_a_coded_error(text: str) -> None:
    try:
        hosts = parse_hosts(text)
    except UsageError as error:
        assert error.code in ("TFRUN-209", "TFRUN-210")
    else:
        assert hosts and all(not host.destination.startswith("-") for host in hosts)


@given(st.lists(st.text(alphabet="ab[1]", max_size=5)))
def test_splitting_loses_nothing(parts: list[str]) -> None:
    text = ",".join(parts)
    assert ",".join(split_list(text)) == text
