"""What TensorFlow's coordinator logs of a server's end goes to the log file only."""

from __future__ import annotations

import logging

_COORDINATOR = "cluster_coordinator.py"


def make_quiet() -> None:
    """Has the coordinator's messages be information, one line each; idempotent. Runs no op.

    It logs the end of a worker as errors of many lines, each twice, while it gives the work to
    another worker and goes on. A person is told in one line by the launcher, which hides
    TensorFlow's information from the terminal.
    """
    logger = logging.getLogger("tensorflow")
    if _as_information not in logger.filters:
        logger.addFilter(_as_information)


def _as_information(record: logging.LogRecord) -> bool:
    if record.pathname.endswith(_COORDINATOR):
        record.msg, record.args = " ".join(record.getMessage().split()), None
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True
