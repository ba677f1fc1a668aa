"""`tfrun join`: this machine takes part in a job that another one serves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from tfrun.agent.settings import AgentSettings
from tfrun.cluster.address import Address
from tfrun.control.protocol import messages, tls, wire
from tfrun.job.errors import TfrunError
from tfrun.job.exits import EXIT_PREEMPTED
from tfrun.job.spec import JobSpec
from tfrun.job.version import __version__
from tfrun.launcher.join.refusal import why_not_in
from tfrun.launcher.remote_agent import own_name, read_line
from tfrun.launcher.waiting import Waiting
from tfrun.process import lineage, sigterm
from tfrun.process.python import python_command

TRY_SECONDS = 1.0  # between two attempts
ANSWER_SECONDS = 4.0
GONE_SECONDS = 60.0  # one that was in looks for its job again for so long
LEAVE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Joining:
    """What `tfrun join` was told.

    Attributes:
      address: the control port.
      token: the job's secret.
      slots: how many workers this machine takes.
      timeout: for how many seconds to try.
      tls: as `protocol.tls.trusting` takes it; None is without TLS.
    """

    address: Address
    token: str
    slots: int
    timeout: float
    tls: dict[str, Any] | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}"


class Join:
    """Tries to get in, takes part, and tries again when it was cut off."""

    def __init__(self, joining: Joining, say: Callable[[str], None]) -> None:
        self._joining, self._say = joining, say
        self._identity = uuid.uuid4().hex
        self._was_in = False
        self._was_let_go = False
        self._process: asyncio.subprocess.Process | None = None
        self._left = False

    async def run(self) -> None:
        """Returns when the job is over, or `leave` was called.

        Raises:
          TfrunError: TFRUN-303 when nobody let it in in time, TFRUN-301 when the job it was in
            is gone, another code when trying again cannot help.
        """
        lineage.adopt_orphans()
        while not self._left:
            answer = await self._get_in()
            if answer is None:
                return
            await self._take_part(answer)

    def leave(self) -> None:
        """Ends this machine's workers, and takes no more part."""
        self._left = True
        if self._process and self._process.stdin:
            self._process.stdin.close()

    def preempted(self) -> None:
        """This machine is being preempted: the job saves first, if it can."""
        if self._process is None or self._process.returncode is not None:
            self._left = True
        else:
            self._process.terminate()

    # --- getting in ---------------------------------------------------------------------------

    async def _get_in(self) -> messages.Enrolled | None:
        """Asks until there is an answer; None when the job is over."""
        patience = GONE_SECONDS if self._was_in else self._joining.timeout
        address = str(self._joining.address)
        waiting = Waiting(address, patience, self._say)
        while not self._left:
            try:
                answer = await self._ask(self._enrolling())
            except (aiohttp.ClientError, OSError, asyncio.TimeoutError, TfrunError) as error:
                reason = why_not_in(error)
                if reason.permanent:
                    raise TfrunError(
                        reason.code, reason.text, where=address, fix=reason.fix
                    ) from None
                if self._was_let_go:
                    self._say("the job is over")
                    return None
            else:
                return self._in(answer)
            if waiting.is_over and self._was_in:
                raise TfrunError("TFRUN-301", f"the job is gone: {reason.text}", where=address)
            if waiting.is_over:
                what = f"the job has not let this machine in for {patience:.0f} s: {reason.text}"
                raise TfrunError("TFRUN-303", what, where=address)
            waiting.because(reason.text)
            await asyncio.sleep(TRY_SECONDS)
        return None

    def _in(self, answer: wire.Message) -> messages.Enrolled | None:
        match answer:
            case messages.Enrolled():
                self._was_in, self._was_let_go = True, False
                return answer
            case messages.Refused(over=True):
                self._say("the job is over")
                return None
            case messages.Refused(code=code, reason=reason):
                raise TfrunError(code, reason, where=str(self._joining.address))
        raise TfrunError("TFRUN-302", f"an answer of the kind {answer.kind!r} was not expected")

    def _enrolling(self) -> messages.Enrol:
        return messages.Enrol(
            name=own_name("unnamed"),
            identity=self._identity,
            slots=self._joining.slots,
            version=__version__,
        )

    async def _ask(self, message: wire.Message) -> wire.Message:
        timeout = aiohttp.ClientTimeout(sock_connect=ANSWER_SECONDS, sock_read=ANSWER_SECONDS)
        headers = {"Authorization": f"Bearer {self._joining.token}"}
        async with (
            aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
            session.post(
                f"{self._joining.url}/join",
                data=wire.encode(message),
                ssl=tls.trusting(self._joining.tls),
            ) as answer,
        ):
            answer.raise_for_status()
            return wire.decode(await answer.text())

    # --- taking part --------------------------------------------------------------------------

    async def _take_part(self, enrolled: messages.Enrolled) -> None:
        """Runs an agent to its end.

        Raises:
          TfrunError: the job cannot run here.
        """
        spec = JobSpec.from_json(enrolled.spec)
        with sigterm.shielded():
            self._process = process = await asyncio.create_subprocess_exec(
                *python_command("tfrun.launcher.remote_agent"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches us alone
            )
        told = AgentSettings(
            spec=spec,
            token=self._joining.token,
            agent=enrolled.agent,
            workers=self._joining.slots,
            url=self._joining.url,
            tls=self._joining.tls,
            silence=spec.timeouts.launcher_timeout,
            attempt=enrolled.attempt,
            directory=os.getcwd(),  # noqa: PTH109
        )
        assert process.stdin and process.stdout
        try:
            process.stdin.write(told.to_line())
            failure: TfrunError | None = None
            async for line in process.stdout:
                said = read_line(line.decode("utf-8", "replace"), "this machine")
                failure = said if isinstance(said, TfrunError) else failure
            self._was_let_go = await process.wait() in (0, EXIT_PREEMPTED)
        finally:
            process.stdin.close()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), LEAVE_SECONDS)
            # What an agent that was killed could not end has become ours.
            await asyncio.to_thread(lineage.kill_descendants)
            await process.wait()
        if failure:
            with contextlib.suppress(aiohttp.ClientError, OSError, asyncio.TimeoutError):
                await self._ask(messages.CannotRun(agent=enrolled.agent, reason=failure.what))
            raise failure
