"""Other settings for a worker that runs, where one script compares both."""

import os
from dataclasses import replace

from tfrun.job.settings import settings


def restate(**changes) -> None:
    """From now on this worker's settings are these; what is made already keeps its own."""
    os.environ.update(replace(settings(), **changes).variables())
    settings.cache_clear()
