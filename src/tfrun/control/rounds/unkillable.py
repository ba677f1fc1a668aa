"""What a round asks for where processes outlive even SIGKILL, in the kernel or unseen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GiveUpAgents:
    """Count these machines as lost, each by `AgentLost`: what runs there cannot be ended."""

    agents: frozenset[str]
