"""Decides whether and where a failed job goes on, and describes that to a person. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tfrun.control.rounds.model import Round
from tfrun.job import reports
from tfrun.job.first_failure import Failure
from tfrun.job.reports import Report
from tfrun.job.restart_policy import Reached, Restarts, Stretch

MAX_NAMED = 3
SUCCEEDED = "a successor took its place"


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What the job remembers across its rounds.

    Attributes:
      restarts: how often it has begun again.
      reached: the furthest step that any worker reported.
      snapshot: the newest snapshot that any worker reported.
      resumed: the state that this round's workers have restored.
      began: where this round went on from, once it has made a step.
      here: how far this round came, as progress counts it.
      stayed: the newest state that a worker holds which is out of this round, and stays.
      in_place: this round goes on from that, in the same processes.
      seen: the last step of this round that anybody has told of; nothing depends on it.
      training: the number of the `fit` call whose steps this round makes.
      saves_itself: the script saves and restores its own checkpoints; else nobody sees its steps.
      died_at: how far the workers were when the job failed; None when no step was seen.
      since: when the failure was noticed that no new step has followed yet, in seconds.
      how: what has failed, or who has joined, and has not been told yet, in words.
      grown: nothing has failed: the job was interrupted to have more workers, or for `gone`.
      gone: the machines that were preempted.
      holders: the newest state in the memory of each machine, by its agent.
    """

    restarts: Restarts
    reached: Reached = (0, 0)
    snapshot: Reached | None = None
    resumed: Reached | None = None
    began: Reached | None = None
    here: Reached | None = None
    stayed: Reached | None = None
    in_place: bool = False
    seen: Reached | None = None
    training: int | None = None
    saves_itself: bool = False
    died_at: Reached | None = None
    since: float | None = None
    how: tuple[str, ...] = ()
    grown: bool = False
    gone: tuple[str, ...] = ()
    holders: Mapping[str, Reached] = field(default_factory=dict)

    def reported(self, report: Report, agent: str = "") -> Recovery:
        """Takes a worker's report of a snapshot, a restored state, a first step or any step.

        Args:
          report: what it says.
          agent: the machine it runs on.
        """
        match report:
            case reports.Placed(key=key, step=step):
                is_own = False
            case reports.CheckpointSaved(step=step) | reports.CheckpointRestored(step=step):
                is_own, key = True, ()
            case reports.StepsMade(step=step, call=call):
                return self._stepped(step, call)
            case reports.EndedAt(step=step):
                return self._stepped(step)
            case _:
                return self
        call = key[0] if key else (self.here or self.reached)[0]
        at = (call, step)
        if isinstance(report, reports.SnapshotTaken | reports.Resumed):
            newest = max(self.holders.get(agent, at), at)
            self = replace(self, holders={**self.holders, agent: newest})
        if isinstance(report, reports.Stayed):
            self = replace(self, stayed=max(self.stayed or at, at))
        if isinstance(report, reports.SnapshotTaken):
            self = replace(self, snapshot=max(self.snapshot or at, at))
        if isinstance(report, reports.Resumed | reports.CheckpointRestored):
            self = replace(self, resumed=at, began=at)
        elif not is_own:
            self = replace(self, reached=max(self.reached, at))
        if isinstance(report, reports.FirstStep) and self.training != call:
            before = (call, max(0, step - report.made))
            # Another model counts for itself.
            self = replace(self, training=call, began=self.began or before, seen=at)
        self = replace(self, began=self.began or (call, 0), here=max(self.here or at, at))
        if is_own:
            return replace(self, saves_itself=True)
        if key and not any(key[1:]):  # what the training before has left: its model's steps
            at = (call - 1, step)
        return replace(self, seen=max(self.seen or at, at))

    def _stepped(self, step: int, call: int | None = None) -> Recovery:
        """Takes the step that a worker tells once a second; nothing but words depends on it."""
        if self.seen is None or step <= self.seen[1]:
            return self
        if call not in (None, self.seen[0]):  # of the training before: the worker is behind
            return self
        return replace(self, seen=(self.seen[0], step))

    def lost(self, agent: str) -> Recovery:
        """Takes the news that a machine's memory is gone."""
        return replace(self, holders={a: at for a, at in self.holders.items() if a != agent})

    def holder(self, there: Collection[str], rather: str = "") -> str | None:
        """Returns the machine with the newest state in its memory; None where nobody has any.

        Args:
          there: the agents that are connected.
          rather: the one to take of several.
        """
        found = {agent: at for agent, at in self.holders.items() if agent in there}
        return max(found, key=lambda agent: (found[agent], agent == rather), default=None)

    def noticed(self, now: float) -> Recovery:
        """Takes the news of a failure; `now` is in seconds."""
        return replace(self, since=self.since if self.how and self.since is not None else now)

    def after(
        self, round: Round, gone: Collection[str] = (), *, seconds: float = 0.0
    ) -> Recovery | None:
        """Returns what is remembered when the next round begins; None when it was the last.

        Args:
          round: the one that has failed.
          gone: the agents that are being preempted meanwhile.
          seconds: for how long it ran.
        """
        stretch = Stretch(began=self.began, reached=self.here, seconds=seconds)
        restarts = self.restarts.after_failure(stretch)
        if restarts is None:
            return None
        how = (*self.how, how_it_failed(round), *_leaving(gone))
        return self._between(gone, restarts=restarts, how=how, grown=False)

    def after_regroup(
        self,
        joined: Collection[str],
        gone: Collection[str] = (),
        *,
        taken: int = 0,
        why: str = "",
    ) -> Recovery:
        """Returns what is remembered when the next round begins with other machines.

        Args:
          joined: the agents of those that have come; none when they are gone again.
          gone: of those that are being preempted.
          taken: how many successors have got a place.
          why: what it was for, in words, where it was for no machine.
        """
        how = [*_leaving(gone), *([f"{_named(joined)} joined"] if joined else [])]
        if taken and not joined:
            how += [f"{taken} successors took their places" if taken > 1 else SUCCEEDED]
        how = (*self.how, *([why] if why else how or ["a host came and went"]))
        return self._between(gone, how=how, grown=self.grown or not self.how)

    @property
    def after_no_failure(self) -> Recovery:
        """What is remembered when the script begins anew, and nothing has failed."""
        return self._between((), since=self.since if self.how else None)

    @property
    def goes_on_in_place(self) -> Recovery:
        """What is remembered when the next round begins with the workers that stayed."""
        at = self.stayed
        new = {"resumed": at, "began": at, "here": at, "seen": at, "training": at and at[0]}
        return replace(self, **new, stayed=None, in_place=True)

    @property
    def call(self) -> int:
        """The number of the `fit` call that the job is in."""
        return (self.here or self.reached)[0] if self.training is None else self.training

    def _between(self, gone: Collection[str], **changes: Any) -> Recovery:
        """Nothing is known yet of the next round."""
        died = max((at for at in (self.died_at, self.seen) if at), default=None)
        new: dict[str, Any] = {"resumed": None, "began": None, "here": None, "seen": None}
        new |= {"training": None, "in_place": False}
        gone = (*self.gone, *sorted(gone))
        return replace(self, **new, died_at=died, gone=gone, **changes)

    @property
    def catches_up(self) -> bool:
        """True when the next round's script comes to where an earlier one was, and says so."""
        return self.snapshot is not None or self.reached > (0, 0)

    @property
    def told(self) -> Recovery:
        """What is remembered once a person knows."""
        return replace(self, how=())

    @property
    def mended(self) -> Recovery:
        """What is remembered once a new step has followed."""
        return replace(self, since=None, how=(), grown=False, gone=(), died_at=None)

    @property
    def lost_steps(self) -> int:
        """How many steps the workers have to do again."""
        died, went_on = self.died_at, self.resumed or self.began or (0, 0)
        if died is None or died <= went_on:
            return 0  # or nobody had told, in the last second before its machine was lost
        # Another training's steps may be another model's, which counts for itself.
        is_same = died[0] == went_on[0] or died[1] >= went_on[1]
        return died[1] - went_on[1] if is_same else died[1]

    def sentence(self, workers: int, seconds: float) -> str:
        """Returns the line that tells of the recovery; "" when it has been told.

        Args:
          workers: how many there are now.
          seconds: from the failure to the first new step.
        """
        if not self.how:
            return ""
        text, died = ", then ".join(self.how[-MAX_NAMED:]), self.died_at
        if died and not self.grown:  # else the workers have left between two steps
            text += f" at step {max(died, self.resumed or self.began or died)[1]:,}"
        many = f"{workers} worker" + ("s" if workers != 1 else "")
        lost = self.lost_steps
        again = f", and does {lost:,} step{'s' if lost != 1 else ''} again," if lost else ""
        where = "restarted from the beginning"
        if self.resumed:
            how = "resumed in place" if self.in_place else "resumed"
            where = f"{how} at step {self.resumed[1]:,}"
        digits = 2 if self.in_place and seconds < 1 else 1
        return f"{text}; {where} with {many}{again} after {seconds:.{digits}f} s"

    @property
    def kind(self) -> str:
        """The name of the event that the log gets."""
        if not self.grown:
            return "recovered"
        return "machine_preempted" if self.gone else "grown"

    def record(self, seconds: float) -> dict[str, Any]:
        """Returns what the event log gets of it, `seconds` after it began."""
        return {
            "step": self.resumed[1] if self.resumed else 0,
            "lost_steps": self.lost_steps,
            "seconds": seconds,
            "restarts": self.restarts.total,
            **({"preempted": list(self.gone)} if self.gone else {}),
        }


def _named(agents: Collection[str]) -> str:
    names = sorted(agents)
    return " and ".join(names) if len(names) <= MAX_NAMED else f"{len(names)} hosts"


def _leaving(agents: Collection[str]) -> list[str]:
    """Returns who is being preempted, as one clause, if anybody is."""
    being = "is" if len(agents) == 1 else "are"
    return [f"{_named(agents)} {being} being preempted"] if agents else []


def first_failures(round: Round) -> list[Failure]:
    """Returns the failures that started the round's end, the earliest first."""
    own = [failure for failure in round.failures if not failure.follows_from_a_peer]
    return sorted(own or list(round.failures)[:1], key=lambda failure: failure.time)


def describe(failure: Failure) -> str:
    """Returns what happened, as one clause: "worker 2 killed by SIGKILL"."""
    name = failure.task.replace(":", " ")
    if failure.follows_from_a_peer:
        return f"{name} lost sight of the others"
    if failure.error:
        return f"{name} raised {failure.error.type}"
    return f"{name} {failure.status}" if failure.status else failure.tail


def how_it_failed(round: Round) -> str:
    """Returns what ended the round, as one clause."""
    failures = first_failures(round)
    named = [describe(failure) for failure in failures[:MAX_NAMED]]
    if len(failures) > MAX_NAMED:
        named.append(f"{len(failures) - MAX_NAMED} more")
    return " and ".join(named)


def one_replica_each(reason: str) -> str:
    """Returns the line that tells what it means that the script begins anew, and why it does."""
    means = "the weights get other bits with another number of workers"
    return f"{reason}. So each worker has one replica from now on: {means}"
