"""The fixtures of this directory's tests, as a pytest plugin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import Hosts, three_hosts


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts, n1 to n3, with one file system."""
    yield from three_hosts(tmp_path, shared=True)


@pytest.fixture
def lone_hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts, of which n2 and n3 do not see the working directory of n1."""
    yield from three_hosts(tmp_path, shared=False)
