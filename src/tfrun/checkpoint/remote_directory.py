"""What a job asks of a place for checkpoints in object storage, beside the checkpoints.

It is the same that it asks of a directory on disk: whether it can be written, who uses it, whether
a job has finished there, what finished trainings have left.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tfrun.checkpoint import answer_in_time, claims, manifest, names
from tfrun.checkpoint.remote_store import LOCK, RemoteStore
from tfrun.job import files
from tfrun.job.errors import TfrunError, UsageError
from tfrun.job.run_dir import FINISHED
from tfrun.job.timeouts import Timeouts
from tfrun.storage import failures, long_waits
from tfrun.storage.lease import STALE_SECONDS, Lease, Stand, Watch
from tfrun.storage.objects import Objects, load

CALLS = "calls"
WHERE = "--checkpoint-dir"
CHECK_SECONDS = 20.0  # for which a storage that does not answer is asked before training
POLL_SECONDS = 1.0


class RemoteDirectory:
    """A place for checkpoints, by its URL.

    Every method raises TfrunError TFRUN-704 where the storage cannot be used.
    """

    def __init__(self, where: str, *, patience: float | None = None) -> None:
        self.where = where
        self.objects = Objects(where) if patience is None else Objects(where, patience=patience)

    def store(
        self, keep: int = 5, *, token: str = "", state_dir: Path | None = None, read_only=False
    ) -> RemoteStore:
        """Returns its checkpoints, see `RemoteStore`."""
        return RemoteStore(
            self.objects, keep, token=token, state_dir=state_dir, read_only=read_only
        )

    # --- before the training -----------------------------------------------------------------

    def check(self, tell: Callable[[str], object]) -> None:
        """Writes an object, reads it, finds it in the list and removes it.

        Args:
          tell: tells a person what is waited for, from another thread.

        Raises:
          UsageError: TFRUN-704.
        """
        load(self.where)  # from a slow disk, perhaps, for which the storage is not to blame
        objects = Objects(self.where, patience=CHECK_SECONDS)
        text = f"waiting up to {CHECK_SECONDS:.0f} s for {self.where}, which does not answer"
        try:
            # A single request may be waited for much longer than all of them may take.
            with long_waits.told(text, tell):
                answer_in_time.within(lambda: _check(objects), CHECK_SECONDS)
        except UsageError:
            raise
        except TimeoutError:
            silence = TimeoutError(f"no answer within {CHECK_SECONDS:.0f} s")
            raise failures.unusable(self.where, objects.failed or silence, where=WHERE) from None
        except TfrunError as error:
            cause = error.__cause__ or error
            raise failures.unusable(self.where, cause, where=WHERE) from error

    @contextlib.contextmanager
    def held(self, token: str, tell: Callable[[str], object], timeouts: Timeouts) -> Iterator[None]:
        """Holds the place for a job, whose agents of before have ended.

        Args:
          token: what the job's writers know it by.
          tell: tells a person who is waited for.
          timeouts: of the job; how long agents of a job before, which save, are waited for.

        Raises:
          UsageError: TFRUN-110, when a job uses it.
        """
        lease = Lease(self.objects, LOCK, token)
        lease.watch.until_known(lambda: tell(self._is_asked(lease.watch.who)))
        if lease.watch.stand is not Stand.HELD:
            self._await_agents(tell, timeouts)
        while not lease.acquire():
            if lease.watch.stand is not Stand.UNKNOWN:  # or another one was quicker
                raise self._in_use(lease.watch.who)
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            lease.release()

    def _is_asked(self, who: str) -> str:
        return (
            f"waiting up to {STALE_SECONDS:.0f} s to see whether the job that has used "
            f"{self.where} still runs ({who or 'unknown'})"
        )

    def _in_use(self, who: str) -> UsageError:
        return UsageError(
            "TFRUN-110",
            f"the checkpoint directory {self.where!r} is in use by {who or 'another job'}",
            where=WHERE,
            fix="Name another directory, or end that job: tfrun stop, with its run directory",
        )

    def _await_agents(self, tell: Callable[[str], object], timeouts: Timeouts) -> None:
        watches: dict[str, Watch] = {}
        until, said = time.monotonic() + claims.longest_wait(timeouts), False
        while time.monotonic() < until:
            holders = []
            for name in self.objects.list(claims.PREFIX):
                watch = watches.setdefault(name, Watch(self.objects, name))
                if (stand := watch.look()) is Stand.GONE:
                    self.objects.remove([name])
                elif stand is not Stand.FREE:
                    agent = name.removeprefix(claims.PREFIX)
                    holders.append(f"the agent {agent}, {watch.who}")
            if not holders:
                return
            if not said:
                tell(claims.told(holders, timeouts))
            said = True
            time.sleep(POLL_SECONDS)

    def begin(self, *, fresh: bool, now: float) -> None:
        """Puts aside what a job that has finished has left; with `fresh` what any has.

        It is copied by the storage itself, and then removed: nothing is renamed there.
        """
        marked = FINISHED in self.objects.list(FINISHED)
        if not (fresh or marked):
            return
        found = [*self.objects.list("ckpt-"), *self.objects.list(f"{CALLS}/")]
        found += [name for name in self.objects.list(names.POINTER) if name == names.POINTER]
        date = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
        below = self.objects.url.partition("://")[2].partition("/")[2]
        aside = Objects(f"{self.where}{'-' if below else '/checkpoints-'}{date}")
        manifests = [name for name in found if name.endswith(f"/{manifest.NAME}")]
        for name in (*(set(found) - set(manifests)), *manifests):
            self.objects.copy(name, aside)
        # Who dies meanwhile does it again: the mark of the end goes last.
        self.objects.remove((*manifests, *(set(found) - set(manifests)), *[FINISHED] * marked))

    def has_checkpoints(self) -> bool:
        """Whether there is something to go on from, readable or not."""
        return bool(self.store(read_only=True).names()) or bool(self.calls())

    def newest_step(self) -> int | None:
        """Returns the step of the newest checkpoint by the manifests alone."""
        found = self.store(read_only=True).list()
        return found[-1][1].step if found else None

    def mark_finished(self) -> None:
        """Notes that the job has finished."""
        self.objects.write(FINISHED, b"")

    # --- what trainings that are done have left -----------------------------------------------

    def calls(self) -> Sequence[str]:
        """Returns the names of the files of trainings that are done."""
        found = self.objects.list(f"{CALLS}/call-")
        return [name.partition("/")[2] for name in found if name.endswith(".safetensors")]

    def has_call(self, name: str) -> bool:
        return name in self.calls()

    def keep_call(self, path: Path) -> None:
        """Keeps such a file."""
        self.objects.put(f"{CALLS}/{path.name}", path)

    def fetch_call(self, name: str, target: Path) -> bool:
        """Reads such a file, whole or not at all; returns False where there is none.

        Raises:
          OSError: there is no room for it here.
        """
        try:
            with files.whole(target) as temporary:
                self.objects.fetch(f"{CALLS}/{name}", temporary)
        except FileNotFoundError:
            return False
        return True


def _check(objects: Objects) -> None:
    name, data = f".probe-{os.getpid()}-{uuid.uuid4().hex[:8]}", b"tfrun\n"
    objects.write(name, data)
    if objects.read(name) != data or name not in objects.list(".probe-"):
        raise objects.refused("what was written is not what is read")
    objects.remove([name])
