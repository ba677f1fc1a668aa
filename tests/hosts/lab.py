"""Several machines on one: network namespaces on a bridge, each with an sshd as its PID 1.

Each host has its own network, host name, mounts and processes; the file system is shared, except
for what is private. Nothing leads out of the lab. Killing a host's PID 1 is a crash of the machine,
taking its link down is a cut cable.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil

from conftest import wait_until

TFRUN = str(Path(sys.executable).with_name("tfrun"))
NET = "10.66.0"
SECONDS = 20

SSHD_CONFIG = """
Port 22
Port 2022
HostKey {directory}/host_key
PidFile {directory}/{name}.pid
AuthorizedKeysFile {directory}/user_key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
LogLevel VERBOSE
StrictModes no
Match User asker
  PubkeyAuthentication no
  PasswordAuthentication yes
"""
# What people have in ~/.ssh/config: aliases, ports, jump hosts, keys.
SSH_CONFIG = """
Host stranger
  HostName n2
  HostKeyAlias n2
  IdentityFile {directory}/wrong_key
Host alias-of-*
  HostKeyAlias n2
Host alias-of-n2
  HostName n2
  Port 2022
Host behind
  HostName n2
  HostKeyAlias n2
  ProxyJump n3
Host crowd-*
  HostName n2
  HostKeyAlias n2
Host * !stranger
  IdentityFile {directory}/user_key
Host *
  User root
  IdentitiesOnly yes
  UserKnownHostsFile {directory}/known_hosts
  StrictHostKeyChecking yes
"""
BOOT = """
set -e
hostname "$1"
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/passwd" /etc/passwd
mount --bind "$2/resolv.conf" /etc/resolv.conf
mount -t tmpfs tmpfs /run
mkdir /run/sshd
[ -z "$3" ] || mount -t tmpfs tmpfs "$3"
exec /usr/sbin/sshd -D -e -f "$2/$1.sshd_config"
"""
# Writes down all that goes over the wires, and says when it has begun.
TAP = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as wires:
    wires.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
    with open(sys.argv[1], "wb", buffering=0) as file:
        print("listening", flush=True)
        while True:
            file.write(wires.recv(1 << 17))
"""


def why_not() -> str:
    """Returns why there can be no lab on this machine; "" when there can."""
    if sys.platform != "linux" or os.getuid() != 0:
        return "network namespaces need root on Linux"
    tools = ("ip", "nft", "nsenter", "ssh", "ssh-keygen", "sshd", "unshare")
    missing = [tool for tool in tools if not shutil.which(tool, path=_path())]
    if missing:
        return f"not installed: {', '.join(missing)}"
    probe = f"probe-{uuid.uuid4().hex[:6]}"
    added = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if added.returncode:
        return f"no network namespaces: {added.stderr.strip()}"
    # A container may have network namespaces and forbid the others.
    isolated = ("unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "true")
    tried = subprocess.run(
        ["ip", "netns", "exec", probe, *isolated], capture_output=True, text=True
    )
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def certificate(directory: Path, address: str) -> tuple[str, str]:
    """Makes a certificate for an IP address; returns its file and that of its key."""
    cert, key = str(directory / "cert.pem"), str(directory / "key.pem")
    made = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=tfrun", "-keyout", key, "-out", cert]
    call("openssl", "req", "-x509", *made, "-addext", f"subjectAltName=IP:{address}")
    return cert, key


def call(*command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        **{"capture_output": True, "text": True, "timeout": SECONDS, "check": False},
        env={**os.environ, "PATH": _path()},
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


class Lab:
    """The hosts n1, n2, … of one test."""

    def __init__(self, directory: Path, count: int, private: Path | None = None) -> None:
        """Args:
        directory: receives the lab's own files.
        count: how many hosts.
        private: a directory that all hosts but the first have for themselves, empty.
        """
        self.directory, self._private = directory, private
        self.names = [f"n{i}" for i in range(1, count + 1)]
        self._prefix = f"t{uuid.uuid4().hex[:6]}"  # other tests may have a lab at the same time
        self._inits: dict[str, subprocess.Popen] = {}

    def up(self) -> None:
        """Builds the network and boots the hosts."""
        self._write_files()
        switch = self._namespace("sw")
        call("ip", "netns", "add", switch)
        call("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        call("ip", "-n", switch, "link", "set", "br0", "up")
        for number, name in enumerate(self.names, start=1):
            space = self._namespace(name)
            call("ip", "netns", "add", space)
            end = ("type", "veth", "peer", "name", "eth0", "netns", space)
            call("ip", "link", "add", f"p{number}", "netns", switch, *end)
            call("ip", "-n", switch, "link", "set", f"p{number}", "master", "br0", "up")
            call("ip", "-n", space, "addr", "add", f"{NET}.{number}/24", "dev", "eth0")
            call("ip", "-n", space, "link", "set", "eth0", "up")
            call("ip", "-n", space, "link", "set", "lo", "up")
        for name in self.names:
            self._boot(name)
        for name in self.names:
            self._wait_for_sshd(name)

    def down(self) -> None:
        """Ends all processes of the lab and takes the network away."""
        spaces = [self._namespace(name) for name in ("sw", *self.names)]
        there = call("ip", "netns", "list").split()
        for space in spaces:
            if space not in there:
                continue
            for pid in call("ip", "netns", "pids", space).split():
                subprocess.run(["kill", "-9", pid], capture_output=True, check=False)
        for init in self._inits.values():
            init.wait(SECONDS)
        for space in spaces:
            if space in there:
                call("ip", "netns", "del", space)
        assert not set(spaces) & set(call("ip", "netns", "list").split())

    # --- what happens to hosts ----------------------------------------------------------------

    def crash(self, name: str) -> None:
        """Ends the machine and every process on it at once, without closing connections."""
        os.kill(self._pid_one(name), 9)
        self._inits[name].wait(SECONDS)

    def cut(self, name: str) -> None:
        """Cuts the host's network connection."""
        call("ip", "-n", self._namespace(name), "link", "set", "eth0", "down")

    def plug_in(self, name: str) -> None:
        """Restores the host's network connection."""
        call("ip", "-n", self._namespace(name), "link", "set", "eth0", "up")

    def part(self, one: str, other: str) -> None:
        """Drops all that two hosts send each other; others still reach both."""
        for here, there in ((one, other), (other, one)):
            address = f"{NET}.{self.names.index(there) + 1}"
            rules = (
                "add table inet parted; add chain inet parted in "
                "{ type filter hook input priority 0; }; "
                f"add rule inet parted in ip saddr {address} drop"
            )
            call("ip", "netns", "exec", self._namespace(here), "nft", rules)

    def join(self, one: str, other: str) -> None:
        """Undoes `part`."""
        for name in (one, other):
            enter = ("ip", "netns", "exec", self._namespace(name))
            call(*enter, "nft", "delete table inet parted")

    def slow(self, name: str, rate: str) -> None:
        """Lets a host send no more than `rate`, such as "100mbit"."""
        limit = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms")
        enter = ("ip", "netns", "exec", self._namespace(name))
        call(*enter, "tc", "qdisc", "add", "dev", "eth0", *limit)

    def narrow(self, one: str, other: str, mtu: int) -> None:
        """Drops packets of more than `mtu` bytes between two hosts, without an ICMP message."""
        for here, there in ((one, other), (other, one)):
            space = self._namespace(here)
            # Packets as they are on a wire: between namespaces larger ones are handed over.
            call("ip", "-n", space, "link", "set", "eth0", "gso_max_segs", "1")
            address = f"{NET}.{self.names.index(there) + 1}"
            rules = (
                "add table inet narrow; add chain inet narrow in "
                "{ type filter hook input priority 0; }; "
                f"add rule inet narrow in ip saddr {address} ip length > {mtu} drop"
            )
            call("ip", "netns", "exec", space, "nft", rules)

    def boot(self, name: str) -> None:
        """Starts a machine that has crashed."""
        (self.directory / f"{name}.pid").unlink()
        self._boot(name)
        self._wait_for_sshd(name)

    def drop(self, name: str, ports: str) -> None:
        """Lets the firewall drop other hosts' connections to the ports, without an answer."""
        rules = (
            "add table inet lab; add chain inet lab in { type filter hook input priority 0; }; "
            f"add rule inet lab in iifname eth0 tcp dport {ports} "
            "tcp flags & (syn | ack) == syn drop"
        )
        call("ip", "netns", "exec", self._namespace(name), "nft", rules)

    @contextmanager
    def wiretap(self) -> Iterator[Callable[[bytes], bool]]:
        """Listens between the hosts; tells whether certain bytes were sent."""
        path = self.directory / f"heard-{uuid.uuid4().hex}"
        enter = ("ip", "netns", "exec", self._namespace("sw"))
        with subprocess.Popen(
            [*enter, sys.executable, "-c", TAP, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PATH": _path()},
        ) as tap:
            try:
                assert tap.stdout and tap.stdout.readline() == b"listening\n"
                yield lambda what: what in path.read_bytes()
            finally:
                tap.kill()

    # --- what runs on hosts -------------------------------------------------------------------

    def start(
        self, name: str, command: list[str], cwd: Path, env: dict[str, str], out: IO, err: IO
    ) -> subprocess.Popen:
        """Starts a command on a host and returns at once; `pid_of` finds the process itself."""
        enter = ["nsenter", "-t", str(self._pid_one(name)), "--net", "--uts", "--mount", "--pid"]
        return subprocess.Popen(
            [*enter, f"--wdns={cwd}", "--", *command],
            **{"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err},
            env=env,
        )

    def call(
        self,
        name: str,
        command: Sequence[str],
        cwd: Path,
        env: dict[str, str],
        *,
        fails: bool = False,
        seconds: float = SECONDS,
    ) -> str:
        """Returns what a command on a host prints, on both of its outputs.

        `fails`: it may end with another code than 0, or be killed after `seconds`.
        """
        with (self.directory / f"said-{uuid.uuid4().hex}").open("w+b") as said:
            process = self.start(name, list(command), cwd, env, said, said)
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.kill(self.pid_of(process), 9)
                process.wait(SECONDS)
                code = None
            said.seek(0)
            text = said.read().decode(errors="replace")
        assert fails or code == 0, (name, command, code, text[-4000:])
        return text

    @staticmethod
    def pid_of(process: subprocess.Popen) -> int:
        """Returns the pid of the command that `start` has started, behind nsenter."""
        (child,) = psutil.Process(process.pid).children()
        return child.pid

    def processes(self, name: str) -> list[str]:
        """Returns the command lines of what runs on a host, except its own sshd.

        Of a connection that was cut, sshd keeps its end for as long as the kernel does.
        """
        space = Path(f"/run/netns/{self._namespace(name)}").stat().st_ino
        own = {self._inits[name].pid}
        if self._inits[name].poll() is None:
            own.add(self._pid_one(name))
        found = []
        for process in psutil.process_iter():
            try:
                there = Path(f"/proc/{process.pid}/ns/net").stat().st_ino == space
                text = " ".join(process.cmdline())[:200].strip()
                is_sshd = process.pid in own or text.startswith("sshd: ")
                if there and not is_sshd and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(text)
            except (psutil.Error, OSError):
                continue
        return found

    def file(self, name: str, path: Path) -> Path:
        """Returns where a host's file is seen from outside."""
        return Path(f"/proc/{self._pid_one(name)}/root{path}")

    # --- how it is built ----------------------------------------------------------------------

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _write_files(self) -> None:
        for key in ("host_key", "user_key", "wrong_key"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / key)
        public = (self.directory / "host_key.pub").read_text()
        hosts = [f"{NET}.{i} {name}" for i, name in enumerate(self.names, start=1)]
        known = [f"{name},{NET}.{i} {public}" for i, name in enumerate(self.names, start=1)]
        texts = {
            "known_hosts": "".join(known),
            "hosts": "\n".join(["127.0.0.1 localhost", *hosts, ""]),
            ".ssh/config": SSH_CONFIG.format(directory=self.directory),
            "passwd": self._passwd(),
            "resolv.conf": "",  # no name server: names that are not in /etc/hosts fail at once
        }
        for name in self.names:
            text = SSHD_CONFIG.format(directory=self.directory, name=name)
            texts[f"{name}.sshd_config"] = text
        (self.directory / ".ssh").mkdir(mode=0o700)
        for name, text in texts.items():
            (self.directory / name).write_text(text)

    def _passwd(self) -> str:
        """Users as they are here, but root's home is the lab's directory: there ssh looks."""
        lines = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
        for fields in lines:
            if fields[0] == "root":
                fields[5] = str(self.directory)
        return "\n".join([*map(":".join, lines), ""])

    def _boot(self, name: str) -> None:
        isolate = ["unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        boot = ["sh", "-c", BOOT, "sh", name, str(self.directory)]
        boot.append(str(self._private) if self._private and name != self.names[0] else "")
        with (self.directory / f"{name}.sshd.log").open("ab") as log:
            self._inits[name] = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self._namespace(name)}", *isolate, *boot],
                **{"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log},
                start_new_session=True,
            )

    def _wait_for_sshd(self, name: str) -> None:
        def ready() -> bool:
            log = (self.directory / f"{name}.sshd.log").read_text()
            assert self._inits[name].poll() is None, log
            return (self.directory / f"{name}.pid").exists()

        wait_until(ready, f"sshd on {name}", SECONDS)

    def _pid_one(self, name: str) -> int:
        (child,) = psutil.Process(self._inits[name].pid).children()
        return child.pid
