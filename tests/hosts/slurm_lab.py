"""A real Slurm on the hosts of a lab: slurmctld on n1, a slurmd on each host.

As root and without systemd and cgroups; without munge it trusts everybody, which is why nothing
leads out of the lab. It looks at the jobs that wait every two seconds, not every minute.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import lab as hosts
from lab import Lab

from conftest import wait_until

# The last one is what keeps a job's container open between its steps.
DAEMONS = ("slurmctld", "slurmscriptd", "slurmd", "slurmstepd", "sleep 100000000", "munged")
CONFIG = """
ClusterName=lab
SlurmctldHost=n1
AuthType=auth/{auth}
CredType=cred/{auth}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool.%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
MailProg=/bin/true
KillWait={kill_wait}
NodeName={nodes} CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
KILL_WAIT = 5
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
SECONDS = 30
TAIL = 6000  # characters


def why_not() -> str:
    """Returns why there can be no Slurm on this machine; "" when there can."""
    if reason := hosts.why_not():
        return reason
    tools = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol")
    missing = [tool for tool in tools if not shutil.which(tool, path=PATH)]
    return f"not installed: {', '.join(missing)}" if missing else ""


class SlurmLab:
    """A lab whose hosts are the nodes of a cluster."""

    def __init__(self, lab: Lab, directory: Path, work: Path, *, munge: bool = False) -> None:
        """Args:
        lab: the hosts, up.
        directory: receives Slurm's own files.
        work: where commands run.
        munge: who calls is proved, as on a real cluster.
        """
        self._munge = munge
        self.lab, self._directory, self.work = lab, directory, work
        names = f"n[1-{len(lab.names)}]"
        (directory / "state").mkdir()
        auth = "munge" if munge else "none"
        text = CONFIG.format(directory=directory, nodes=names, kill_wait=KILL_WAIT, auth=auth)
        (directory / "slurm.conf").write_text(text)
        (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TFRUN_", "SLURM_"))}
        kept.pop("TF_CONFIG", None)
        self.environment = {
            **kept,
            "SLURM_CONF": str(directory / "slurm.conf"),
            "PATH": PATH,
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
        }

    def up(self) -> None:
        """Starts the daemons, and waits until all nodes are idle."""
        conf = self.environment["SLURM_CONF"]
        if self._munge:
            self._start_munge()
        self._run("n1", ["slurmctld", "-f", conf], fails=False, seconds=SECONDS)
        for name in self.lab.names:
            (self._directory / f"spool.{name}").mkdir()
            self._run(name, ["slurmd", "-f", conf], fails=False, seconds=SECONDS)

        def all_idle() -> bool:
            states = self.call("sinfo", "--noheader", "-N", "-o", "%T", fails=True).split()
            return states == ["idle"] * len(self.lab.names)

        wait_until(all_idle, "all nodes are idle", SECONDS)

    def _start_munge(self) -> None:
        key = self._directory / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        socket = "/run/munge/munge.socket.2"  # each host has a /run of its own
        options = f"--key-file={key} --log-file=/run/munge/log --seed-file=/run/munge/seed"
        start = f"mkdir -m 755 /run/munge && munged --force {options} --socket={socket}"
        for name in self.lab.names:
            self._run(name, ["sh", "-c", start], fails=False, seconds=SECONDS)

    def call(self, *command: str, fails: bool = False, seconds: float = SECONDS) -> str:
        """Returns what a command on n1 prints, on both of its outputs."""
        return self._run("n1", command, fails=fails, seconds=seconds)

    def state(self, job: str) -> str:
        """Returns a job's state, as scontrol shows it."""
        said = self.call("scontrol", "show", "job", "--oneliner", job)
        return said.partition("JobState=")[2].partition(" ")[0]

    def told(self) -> str:
        """Returns the last lines of Slurm's logs and the job's, for a test that has failed."""
        logs = [*self._directory.glob("slurm*.log"), *self.work.rglob("*.log")]
        tails = [f"== {path}\n{path.read_text(errors='replace')[-TAIL:]}" for path in sorted(logs)]
        queue = self.call("scontrol", "show", "job", "--oneliner", fails=True)
        return "\n".join([*tails, "== the queue", queue, "== what runs", *self.left()])

    def left(self) -> list[str]:
        """Returns what still runs on any host, besides Slurm itself."""
        running = [text for name in self.lab.names for text in self.lab.processes(name)]
        return [text for text in running if not _is_slurms(text)]

    def _run(self, name: str, command: Sequence[str], *, fails: bool, seconds: float) -> str:
        given = (command, self.work, self.environment)
        return self.lab.call(name, *given, fails=fails, seconds=seconds)


def _is_slurms(text: str) -> bool:
    first, _, rest = text.removeprefix(": ").partition(" ")
    return f"{Path(first).name} {rest}".startswith(DAEMONS)


@contextmanager
def slurm_on_hosts(tmp_path: Path, count: int, *, munge: bool = False) -> Iterator[SlurmLab]:
    """A Slurm of `count` hosts; at the end nothing may run on it any more."""
    for name in ("lab", "slurm", "work"):
        (tmp_path / name).mkdir()
    lab = Lab(tmp_path / "lab", count)
    try:
        lab.up()
        slurm = SlurmLab(lab, tmp_path / "slurm", tmp_path / "work", munge=munge)
        slurm.up()
        try:
            yield slurm
            wait_until(lambda: not slurm.left(), "nothing is left behind", 10)
        except BaseException:
            print(slurm.told())
            raise
    finally:
        lab.down()
