"""Models that people train, on two hosts with a core each: links of several rates and delays.

    python bench/networks.py [--models resnet50 encoder …] [--contenders default DDP …]
                             [--links "1 Gbit/s" …]

Each job trains on all links, one after the other: its workers set the link between two epochs. The
bound of a row is the larger of what one worker alone takes and what its bytes take on the link; how
far the step is above it stands below. Needs root, for network namespaces and `tc`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import secrets
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import harness
import models
from harness import numbers, record, torch_python
from measured import Contender, Measured, chosen, in_turn
from models import TITLES, TORCH_ALONE
from peers import ALONE, TORCH
from two_hosts import ADDRESSES, DEVICE, LATE, NAMES, TwoHosts, why_not

PORT, MASTER_PORT = 7000, 29500


@dataclass(frozen=True, kw_only=True)
class Link:
    """What each of the two hosts can send: Gbit/s, and milliseconds until it arrives.

    Attributes:
      relay: the directory of `TwoHosts.relay`, when the kernel cannot delay packets itself.
    """

    gigabits: float
    milliseconds: float = 0.0
    relay: str = ""

    def __str__(self) -> str:
        late = f", {self.milliseconds:g} ms" if self.milliseconds else ""
        return f"{self.gigabits:g} Gbit/s{late}"

    def commands(self) -> list[list[str]]:
        """What sets it, run on the host that sends."""
        device = LATE if self.relay else DEVICE
        rate = f"{self.gigabits:g}gbit"
        burst = f"{max(256, round(self.gigabits * 256))}kb"
        shape = ["tbf", "rate", rate, "burst", burst, "latency", "50ms"]
        if self.milliseconds and not self.relay:
            delay = ["delay", f"{self.milliseconds:g}ms", "rate", rate]
            shape = ["netem", *delay, "limit", "100000"]
        # Of the two routes a host has one to itself, which does nothing.
        set_up = [["ip", "route", "replace", f"{a}/32", "dev", device] for a in ADDRESSES]
        if self.relay:
            told = f"echo {self.milliseconds / 1000} > {self.relay}/$(hostname)"
            set_up.append(["sh", "-c", told])
        return [*set_up, ["tc", "qdisc", "replace", "dev", device, "root", *shape]]


# In this order: connections live on when the link changes, and what TCP has learned of a shorter
# way would let it send too little on a longer one, for many seconds.
LINKS = (
    *(Link(gigabits=1, milliseconds=late) for late in (5.0, 1.0, 0.2)),
    *(Link(gigabits=1), Link(gigabits=10)),
)
# Options, and threads of a worker: one, since its host has one core; --overlap auto is off then.
OURS = "tfrun, default options"
SETTINGS = {
    OURS: ("", 1),
    "tfrun, --overlap on": ("--overlap on", 1),
    "tfrun, --overlap off": ("--overlap off", 1),
    "tfrun, two threads": ("", 2),
    "tfrun, two threads, --overlap off": ("--overlap off", 2),
    "tfrun, --compress bf16": ("--compress bf16", 1),
    "tfrun, --compress fp16": ("--compress fp16", 1),
    "tfrun, two threads, --compress bf16": ("--compress bf16", 2),
}
DEFAULT = (OURS, "tfrun, --overlap on", "tfrun, two threads", "tfrun, --compress bf16", TORCH)
MODELS = ("resnet50", "encoder")


def main(
    names: Sequence[str] = MODELS,
    wanted: Sequence[str] = DEFAULT,
    links: Sequence[Link] = LINKS,
    repeats: int = 1,
) -> None:
    if reason := why_not():
        print(f"\nNO NETWORKS ARE MEASURED: {reason}", file=sys.stderr)
        for name in names:
            record(_title(name), "ms a step", {}, not_run={"two hosts": reason})
        return
    with TwoHosts() as hosts:
        links = _as_the_kernel_can(hosts, links)
        refused = {str(link): hosts.refuses(link.commands()) for link in links}
        usable = [link for link in links if not refused[str(link)]]
        not_there = {name: f"no such link: {why}" for name, why in refused.items() if why}
        for name, reason in not_there.items():
            print(f"\nNOT MEASURED: {name}: {reason}", file=sys.stderr)
        if not usable:
            raise SystemExit("No link of those wanted can be made here.")
        for name in names:
            these = chosen(contenders(hosts, name, usable), wanted)
            single = {ALONE} | ({TORCH_ALONE} if TORCH in these else set())
            alone = chosen(models.contenders(name, 1), sorted(single))
            compute, no_compute = in_turn(alone, repeats)
            found, not_run = in_turn(these, repeats, apart=True)
            tell(name, usable, compute, found, {**not_there, **no_compute, **not_run})


def _as_the_kernel_can(hosts: TwoHosts, links: Sequence[Link]) -> list[Link]:
    """Has a process delay what the kernel cannot."""
    late = [link for link in links if link.milliseconds]
    why = hosts.refuses(late[0].commands()) if late else ""
    if not why:
        return list(links)
    print(f"\nNO DELAY BY THE KERNEL, BUT BY A PROCESS THAT TAKES TIME: {why}", file=sys.stderr)
    try:
        relay = hosts.relay()
    except (OSError, RuntimeError) as error:
        print(f"\nNOR BY A PROCESS: {error}", file=sys.stderr)
        return list(links)
    return [replace(link, relay=relay) if link.milliseconds else link for link in links]


def contenders(hosts: TwoHosts, name: str, links: Sequence[Link]) -> dict[str, Contender]:
    """Those that can train a model on two hosts, by what they are called in the table."""
    commands, each = [link.commands() for link in links], _epochs()
    shared = {
        "BENCH_LINKS": json.dumps(commands),
        "BENCH_LINK_EPOCHS": str(each),
        "BENCH_EPOCHS": str(1 + each * len(links)),
    }
    found: dict[str, Contender] = {
        setting: functools.partial(
            *(_tfrun, hosts, name, commands[0], options.split()),
            {**shared, "BENCH_THREADS": str(threads)},
        )
        for setting, (options, threads) in SETTINGS.items()
    }
    return {**found, TORCH: functools.partial(_torch, hosts, name, commands[0], shared)}


def _epochs() -> int:
    return int(os.environ.get("BENCH_EPOCHS", "3")) - 1


def _tfrun(
    hosts: TwoHosts,
    name: str,
    link: list[list[str]],
    options: list[str],
    environment: Mapping[str, str],
) -> list[float]:
    hosts.both(link)
    tool = str(Path(sys.executable).with_name("tfrun"))
    with tempfile.TemporaryDirectory() as directory:
        token = Path(directory, "token")
        token.touch(mode=0o600)
        token.write_text(secrets.token_urlsafe(32))
        where, secret = f"{ADDRESSES[0]}:{PORT}", ["--token-file", str(token)]
        serve = [tool, "serve", "-n", str(len(NAMES)), "--listen", where, *secret, *options]
        script = [str(harness.SCRIPTS / "peer_fit.py"), name, "keras3"]
        commands = [
            [*serve, "--run-dir", f"{directory}/run", *script],
            [tool, "join", where, *secret],
        ]
        return hosts.run(commands, [environment, environment])


def _torch(
    hosts: TwoHosts, name: str, link: list[list[str]], environment: Mapping[str, str]
) -> list[float]:
    hosts.both(link)
    command = [torch_python(), str(harness.SCRIPTS / "peer_torch.py"), name]
    meeting = {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(MASTER_PORT)}
    shared = {**environment, **meeting, "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": DEVICE}
    return hosts.run([command] * 2, [{**shared, "RANK": str(rank)} for rank in range(2)])


def tell(
    name: str,
    links: Sequence[Link],
    compute: Mapping[str, list[Measured]],
    found: Mapping[str, list[Measured]],
    not_run: Mapping[str, str],
) -> None:
    """Records a model's table."""
    rows, bounds, bytes_sent, steps = {}, {}, {}, {}
    for who, all in compute.items():
        rows[who] = numbers([step for run in all for step in run.steps])
    for number, link in enumerate(links):
        its = slice(number * _epochs(), (number + 1) * _epochs())
        for who, all in found.items():
            row = f"{link}: {who}"
            rows[row] = numbers([s for run in all for s in run.steps[its]])
            sent = statistics.median(b for run in all for b in run.sent[its])
            steps[row] = rows[row]["median"]
            bytes_sent[f"MB sent a step: {row}"] = sent / 1e6
            single = TORCH_ALONE if who == TORCH else ALONE
            if single in rows:
                least = bound(rows[single]["median"], sent, link)
                bounds[f"times its bound of {least:.0f} ms: {row}"] = steps[row] / least
    ratios: dict[str, float] = {**bounds, **bytes_sent}
    for link in links:
        ours = steps.get(f"{link}: {OURS}")
        if ours is None:
            continue
        same = [f"{link}: {who}" for who in SETTINGS if "compress" not in who]
        best = min(steps[row] for row in same if row in steps)
        ratios[f"default options over the best without compression: {link}"] = ours / best
        if (theirs := steps.get(f"{link}: {TORCH}")) is not None:
            ratios[f"{TORCH} over tfrun: {link}"] = theirs / ours
    record(_title(name), "ms a step", rows, not_run=not_run, **ratios)


def bound(alone: float, sent: float, link: Link) -> float:
    """The least that a step can take, when it computes while it sends.

    Args:
      alone: milliseconds of a step that sends nothing.
      sent: bytes that each host sends in a step.
      link: which has no delay here: it takes nothing from the rate.

    Returns:
      Milliseconds.
    """
    return max(alone, sent * 8 / (link.gigabits * 1e9) * 1000)


def _title(name: str) -> str:
    return f"{TITLES[name]}, two hosts"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    by_name = {str(link): link for link in LINKS}
    parser.add_argument("--links", nargs="+", choices=tuple(by_name), default=tuple(by_name))
    given = models.arguments(parser, MODELS)
    links = [by_name[name] for name in given.links]
    main(given.models, given.contenders or DEFAULT, links, given.repeats)
