"""Finds what is wrong with machines, from their answers. Pure."""

from __future__ import annotations

import ipaddress
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfrun.cluster.address import ip_of

GB = 1 << 30
ERROR, WARNING, NOTE = SEVERITIES = ("error", "warning", "note")
LEAST_FREE = GB  # a worker has imported TensorFlow with half of it
LITTLE_FREE = 4 * GB
LEAST_DISK = GB
LEAST_SHM = GB  # with less, snapshots are on the disk
LEAST_FILES = 1024
LEAST_PROCESSES = 4096  # threads count, and a worker has some hundreds on a large machine
CLOCK_SECONDS = 1.0
SLOW_PART = 0.5  # of what the other machines reach

Facts = Mapping[str, Any]


class Finding(NamedTuple):
    """Something to know before training.

    `severity` is "error" when training would fail, "warning" when something is not as it should be,
    "note" for what is so by nature. `what` is one sentence without its full stop; `where` a
    machine, or two with an arrow between them; then why it matters, and what to do.
    """

    severity: str
    what: str
    where: str
    why: str
    fix: str


def of_machine(name: str, facts: Facts) -> Iterator[Finding]:
    """What is wrong with one machine by itself."""
    versions = facts["versions"]
    if not any(key.startswith(("tensorflow", "tf-")) for key in versions):
        what = "TensorFlow is not installed"
        why = "workers run it"
        fix = 'pip install "tfrun[cpu]", or "tfrun[gpu]" with NVIDIA GPUs'
        yield Finding(ERROR, what, name, why, fix)
    free = facts["memory"]["free"]
    if free < LITTLE_FREE:
        severity = ERROR if free < LEAST_FREE else WARNING
        what = f"only {_gb(free)} of memory are free"
        why = "each worker needs 0.6 GB for TensorFlow itself, and then the model"
        fix = "End what else runs there, or give the machine fewer workers"
        yield Finding(severity, what, name, why, fix)
    yield from _spaces(name, facts)
    files = facts["limits"]["open files"]
    if 0 <= files < LEAST_FILES:
        what = f"a process may open {files} files"
        why = "connections to all other workers, logs and data files count"
        fix = "ulimit -n 65536, or nofile in /etc/security/limits.conf"
        yield Finding(WARNING, what, name, why, fix)
    processes = facts["limits"]["processes"]
    if 0 <= processes < LEAST_PROCESSES:
        what = f"a user may have {processes} processes and threads"
        why = "TensorFlow starts threads for each core, and ends the worker when it may not"
        fix = "ulimit -u 65536, or nproc in /etc/security/limits.conf"
        yield Finding(WARNING, what, name, why, fix)
    if facts["has_nvidia_driver"] and not facts["gpus"]:
        what = "there is an NVIDIA driver, but nvidia-smi shows no GPU"
        why = "TensorFlow would train on the CPU"
        fix = "Run nvidia-smi there and repair what it says"
        yield Finding(WARNING, what, name, why, fix)
    if facts["load"] > 2 * facts["cores"]:
        what = f"its load is {facts['load']:.0f} on {facts['cores']} cores"
        why = "all workers wait for the slowest one in each step"
        fix = "End what else runs there"
        yield Finding(WARNING, what, name, why, fix)


def _spaces(name: str, facts: Facts) -> Iterator[Finding]:
    disk, shm = facts["disk"], facts["shm"]
    if facts["directory"] is None:
        what = "the working directory is not there"
        why = "a job over SSH runs in the directory that it is started in, by the same path"
        fix = "Have the same directories there, or name one with --remote-dir; --sync copies it"
        yield Finding(WARNING, what, name, why, fix)
    if disk and not disk["writable"]:
        what = f"{disk['path']} cannot be written"
        why = "logs and checkpoints are written there"
        fix = "Give the user write permission, or name another place with --run-dir"
        yield Finding(ERROR, what, name, why, fix)
    if disk and disk["free"] < LEAST_DISK:
        what = f"only {_gb(disk['free'])} are free at {disk['path']}"
        why = "logs and checkpoints are written there"
        fix = "Make room, or name another place with --run-dir"
        yield Finding(ERROR, what, name, why, fix)
    if shm is None or shm["total"] < LEAST_SHM:
        size = "is missing" if shm is None else f"has only {_gb(shm['total'])}"
        what = f"/dev/shm {size}"
        why = "snapshots go to the disk for temporary files instead, which is slower"
        fix = "Mount it with more; for a container --shm-size=2g"
        yield Finding(WARNING, what, name, why, fix)
    elif shm["free"] < LEAST_SHM // 4:
        what = f"only {_gb(shm['free'])} of /dev/shm are free"
        why = "snapshots of the training state are kept there"
        fix = "Remove what nobody needs from there"
        yield Finding(WARNING, what, name, why, fix)


def of_versions(machines: Mapping[str, Facts]) -> Iterator[Finding]:
    """Programs of which machines have different versions, by the majority's."""
    programs = sorted({key for facts in machines.values() for key in facts["versions"]})
    for program in programs:
        versions = {name: f["versions"].get(program, "none") for name, f in machines.items()}
        usual, _ = Counter(versions.values()).most_common(1)[0]
        minors = {version.rpartition(".")[0] for version in versions.values()}
        is_patch = program == "python" and len(minors) == 1
        for name, version in versions.items():
            if version != usual:
                severity = WARNING if is_patch or program == "numpy" else ERROR
                what = f"{program} is {version}, elsewhere {usual}"
                why = "workers have to understand each other, and compute the same"
                fix = f"Have {program} {usual} there as well"
                yield Finding(severity, what, name, why, fix)


def of_gpus(machines: Mapping[str, Facts]) -> Iterator[Finding]:
    """Machines with other GPUs, or another driver, than most."""
    for kind, of in (
        ("GPUs", lambda facts: ", ".join(gpu["name"] for gpu in facts["gpus"]) or "none"),
        ("NVIDIA driver", lambda facts: (facts["gpus"] or [{"driver": "none"}])[0]["driver"]),
    ):
        found = {name: of(facts) for name, facts in machines.items()}
        usual, _ = Counter(found.values()).most_common(1)[0]
        for name, text in found.items():
            if text != usual:
                what = f"{kind}: {text}, elsewhere {usual}"
                why = "all workers wait for the slowest one in each step"
                fix = "Use machines of one kind together"
                yield Finding(WARNING, what, name, why, fix)


def of_clocks(offsets: Mapping[str, tuple[float, float]]) -> Iterator[Finding]:
    """Clocks that differ from this machine's.

    `offsets` has (seconds that it is ahead, how uncertain that is) of each machine.
    """
    for name, (offset, uncertain) in offsets.items():
        if abs(offset) - uncertain > CLOCK_SECONDS:
            ahead = "ahead of" if offset > 0 else "behind"
            what = f"its clock is {abs(offset):.1f} s {ahead} this machine's"
            why = "the first failure of several is told by time, and certificates are checked"
            fix = "Turn on chrony or systemd-timesyncd there"
            yield Finding(WARNING, what, name, why, fix)


def of_names(machines: Mapping[str, Facts]) -> Iterator[Finding]:
    """Names that mean another address on another machine, or the machine itself everywhere."""
    names = sorted({name for facts in machines.values() for name in facts["names"]})
    for asked in names:
        if ip_of(asked):
            continue
        meanings = {name: tuple(facts["names"].get(asked, ())) for name, facts in machines.items()}
        # In its own /etc/hosts a machine's name often is 127.0.1.1.
        others = {name: found for name, found in meanings.items() if name != asked}
        for name, found in others.items():
            ips = [ipaddress.ip_address(text.partition("%")[0]) for text in found]
            if ips and all(ip.is_loopback for ip in ips):
                what = f"{asked} resolves to {', '.join(found)} there"
                why = "what uses names would connect to itself"
                fix = f"Correct {asked} in its /etc/hosts"
                yield Finding(WARNING, what, name, why, fix)
        usual = Counter(others.values()).most_common(1)
        for name, found in others.items():
            if usual and found != usual[0][0]:
                what = f"{asked} is {_listed(found)} there, elsewhere {_listed(usual[0][0])}"
                why = "machines would look for each other in different places"
                fix = "Use one DNS, or the same /etc/hosts everywhere"
                yield Finding(WARNING, what, name, why, fix)


def of_connections(verdicts: Mapping[tuple[str, str], Facts]) -> Iterator[Finding]:
    """Pairs of machines of which one cannot connect to the other."""
    reasons = {
        "dropped": (
            "packets to it are silently dropped",
            "Open the firewall for TCP between the machines, on all ports above 1023",
        ),
        "refused": (
            "the connection is refused, although something listens",
            "A firewall rejects it, or the address is another machine's: look at both",
        ),
        "unreachable": ("there is no way to it", "Look at addresses, routes and VPNs of both"),
    }
    for (source, target), said in verdicts.items():
        if said["verdict"] == "reachable":
            continue
        if said["verdict"] == "narrow":
            yield narrow(f"{source} → {target}", said["mtu"])
            continue
        what, fix = reasons[said["verdict"]]
        what += f" ({said['why']})" if said.get("why") else ""
        why = "workers connect to each other in both directions, on free ports"
        yield Finding(ERROR, what, f"{source} → {target}", why, fix)


def narrow(where: str, mtu: int) -> Finding:
    """A way on which large packets are lost.

    `mtu` is the largest that arrive, in bytes.
    """
    what = f"packets of more than {mtu} bytes are lost on the way, and nobody says so"
    why = "connections are made, and hang forever at the first large packet"
    fix = (
        f"Give the interfaces on both sides an MTU of {mtu} (ip link set dev NAME mtu {mtu}), "
        "or repair what lies between: a switch, tunnel or VPN with a smaller MTU, or a firewall "
        "that drops ICMP"
    )
    return Finding(ERROR, what, where, why, fix)


def of_network(machines: Mapping[str, Facts]) -> Iterator[Finding]:
    """Machines without an address that others can reach."""
    for name, facts in machines.items():
        if len(machines) > 1 and not facts["address"]:
            what = "it has no address but loopback"
            why = "its workers have to be reached by the others"
            fix = "Bring a network interface up"
            yield Finding(ERROR, what, name, why, fix)


def of_openness(machines: Mapping[str, Facts]) -> Iterator[Finding]:
    """Who reaches the ports that TensorFlow's collectives and servers open, on all interfaces."""
    if len(machines) < 2:
        return
    addresses = [(name, facts["address"]) for name, facts in machines.items() if facts["address"]]
    public = [name for name, address in addresses if ipaddress.ip_address(address).is_global]
    what = "whoever reaches the workers' ports can take part in the job and run code in it"
    if public:
        what = f"its address is on the public Internet, and {what}"
    severity = WARNING if public else NOTE
    why = (
        "with GPUs, --communication ring or --ps the workers use TensorFlow's connections, which "
        "are neither encrypted nor authenticated, and it listens on all interfaces"
    )
    fix = "Have a firewall let nobody but these machines reach their ports above 1023"
    yield Finding(severity, what, ", ".join(public or machines), why, fix)


def slow_machines(pairs: Mapping[tuple[str, str], float]) -> list[tuple[str, float, float]]:
    """Returns (machine, its speed, that of the pairs without it) for those that slow a sum down.

    `pairs` has what each pair of machines reaches, the more the better.
    """
    slow = []
    for name in sorted({name for pair in pairs for name in pair}):
        own = [speed for pair, speed in pairs.items() if name in pair]
        rest = [speed for pair, speed in pairs.items() if name not in pair]
        # With two machines nobody can say which one it is.
        if rest and statistics.median(own) < SLOW_PART * statistics.median(rest):
            slow.append((name, statistics.median(own), statistics.median(rest)))
    return slow


def of_speeds(pairs: Mapping[tuple[str, str], float]) -> Iterator[Finding]:
    """Machines that slow a sum down, by name.

    `pairs` has the bytes per second of each pair.
    """
    for name, own, rest in slow_machines(pairs):
        what = f"it reaches {own / 1e6:.0f} MB/s with the others, they {rest / 1e6:.0f} MB/s"
        why = "gradients travel through all machines, at the pace of the slowest"
        fix = "Look at its cable, its switch port and what else uses its network"
        yield Finding(WARNING, what, name, why, fix)


def fails(findings: Sequence[Finding]) -> bool:
    """True when training would fail."""
    return any(finding.severity == ERROR for finding in findings)


def _gb(count: float) -> str:
    return f"{count / GB:.1f} GB"


def _listed(addresses: Sequence[str]) -> str:
    return ", ".join(addresses) or "unknown"
