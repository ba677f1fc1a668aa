"""Links that break and come back all the time, one of them and both: `-n 2:4` over three hosts."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from machines import Hosts, needs_hosts, thorough

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts

SCRIPT = Path(__file__).parents[1] / "cluster" / "scripts" / "in_place_marathon.py"
FLAPS, SECONDS = 12, 300
OPTIONS = ("--replicas", "4", "--threads-per-worker", "1")
PASSED = ("--env", "EPOCHS", "--env", "PAUSE")


@thorough
@pytest.mark.timeout(3 * SECONDS)
def test_flapping_links_change_no_bit_and_lose_no_step(hosts: Hosts) -> None:
    hosts.environment |= {"EPOCHS": "60", "PAUSE": "0"}
    _, out, err = hosts.end(hosts.start(SCRIPT.read_text(), "-n", "1", *OPTIONS), SECONDS)
    assert "BITS" in out, err
    (wanted,) = re.findall("BITS .*", out)
    hosts.environment["PAUSE"] = "0.05"
    given = ("-H", "n1:2,n2,n3", "-n", "2:4", "--ledger", "--run-dir", "run", "--max-restarts", "9")
    process = hosts.start(SCRIPT.read_text(), *given, *OPTIONS, *PASSED)
    try:
        hosts.until_said("global batch")
        chance, out_of_it = random.Random(5), set[str]()
        for _ in range(FLAPS):
            name = chance.choice(("n2", "n3"))
            assert process.poll() is None, hosts.said
            if name in out_of_it:
                hosts.lab.plug_in(name)
            else:
                hosts.lab.cut(name)
            out_of_it ^= {name}
            # Some are over before anybody has noticed, some while the next round forms.
            time.sleep(chance.choice((0.4, 2.5, 4.0, 7.0)))
        for name in out_of_it:
            hosts.lab.plug_in(name)
        code, out, err = hosts.end(process, SECONDS)
    except BaseException:
        hosts.kill(process)
        print(hosts.said)
        raise
    changes = Counter(
        (kind, event["in_place"]) for kind in ("recovered", "grown") for event in hosts.events(kind)
    )
    print(err, changes)
    assert code == 0
    assert re.findall("BITS .*", out) == [wanted]
    assert [e["lost_steps"] for e in hosts.events("recovered")] == [0] * (
        changes["recovered", True] + changes["recovered", False]
    )
    assert changes["recovered", True] and changes["grown", True]
    code, out, err = hosts.end(hosts.start("", "ledger", "run", script=()))
    assert "every sample exactly once" in out, out + err
