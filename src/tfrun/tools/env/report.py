"""Puts together what `tfrun env` tells, and writes it as lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfrun.tools.env import installed, machine

_GB = 1 << 30
_WIDTH = 15


def collect(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Returns everything, as JSON has it; sizes are in bytes. Takes a few seconds."""
    found = {
        "tfrun": installed.about_tfrun(),
        "python": installed.about_python(),
        "packages": installed.packages(),
        "tensorflow": installed.ask_tensorflow(),
        "machine": machine.facts(),
        "schedulers": machine.schedulers(environment),
        "variables": machine.variables(environment),
    }
    return without_home(found)


def without_home(found: dict[str, Any], home: str | None = None) -> dict[str, Any]:
    """Writes "~" for the home directory, whose name is mostly a person's.

    Args:
      found: what JSON can hold.
      home: the directory; by default this user's.
    """
    home = str(Path.home()) if home is None else home
    if home in ("", "/"):
        return found
    # As JSON writes it, so that no value is forgotten.
    return json.loads(json.dumps(found).replace(json.dumps(home)[1:-1] + "/", "~/"))


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines for a person, to be pasted into a report."""
    tfrun, python, here = found["tfrun"], found["python"], found["machine"]
    editable = " (editable)" if tfrun["editable"] else ""
    yield _line("tfrun", f"{tfrun['version']}, {tfrun['where']}{editable}")
    venv = ", in a virtual environment" if python["venv"] else ""
    name = "" if python["implementation"] == "CPython" else f" ({python['implementation']})"
    yield _line("Python", f"{python['version']}{name}, {python['executable']}{venv}")
    yield from _of_tensorflow(found)
    yield from _of_machine(here)
    for scheduler, values in found["schedulers"].items():
        told = [f"{name}={value}" for name, value in values.items() if name != "command"]
        program = [f"{values['command']} is here"] if "command" in values else []
        yield _line(scheduler, ", ".join([*(told or ["not in a job of it"]), *program]))
    if not found["schedulers"]:
        yield _line("scheduler", "neither Slurm nor Kubernetes")
    for title, (name, value) in _titled("variables", found["variables"]):
        yield _line(title, f"{name}={value}")


def _of_tensorflow(found: Mapping[str, Any]) -> Iterator[str]:
    said, (tensorflow, keras, *others) = found["tensorflow"], found["packages"].items()
    version = f"{tensorflow[1]} ({tensorflow[0]})" if tensorflow[1] else ""
    if "error" in said:
        yield _line("TensorFlow", ", ".join(filter(None, (version, said["error"]))))
        yield _line("Keras", keras[1] or "not installed")
    else:
        cuda = f"built with CUDA {said['cuda']}, cuDNN {said['cudnn']}" if said["cuda"] else ""
        built = cuda or ("built with ROCm" if said["rocm"] else "built without CUDA")
        count = len(said["gpus"])
        sees = f"sees {count or 'no'} GPU" + "s" * (count > 1)
        yield _line("TensorFlow", f"{version}, {built}, {sees}")
        settings = ", ".join(f"{name} {value}" for name, value in said["keras"].items())
        yield _line("Keras", f"{keras[1]}, {settings}")
    yield _line("packages", ", ".join(f"{name} {version}" for name, version in others))


def _of_machine(here: Mapping[str, Any]) -> Iterator[str]:
    system, processor, cores = here["system"], here["processor"], here["cores"]
    inside = here["container"] and f"in a container of {here['container']}"
    known = (system["name"], system["kernel"], system["libc"], inside)
    yield _line("system", ", ".join(filter(None, known)))
    yield _line("processor", ", ".join([processor["name"], *processor["instructions"]]))
    used = f"{cores['usable']} of {cores['all']} usable, load {here['load']:.1f}"
    yield _line("cores", used)
    memory = here["memory"]
    limit = f", at most {memory['limit'] / _GB:.1f} GB for this job" if memory["limit"] else ""
    yield _line(
        "memory", f"{memory['free'] / _GB:.1f} of {memory['total'] / _GB:.1f} GB free{limit}"
    )
    gpus = [f"{gpu['name']} ({gpu.get('memory', '')})" for gpu in here["gpus"]]
    driver = f", driver {here['gpus'][0].get('driver', '')}" if gpus else ""
    yield _line("GPUs", ", ".join(gpus) + driver if gpus else "none by NVIDIA's driver")
    for title, (what, space) in _titled("disk", here["disks"]):
        sizes = f"{space['free'] / _GB:.1f} of {space['total'] / _GB:.1f} GB free"
        yield _line(title, f"{what}: {sizes}, {space['path']}")
    limits = ", ".join(f"{what} {n or 'unlimited'}" for what, n in here["limits"].items())
    yield _line("limits", limits)
    ports = here["ports"]
    span = "{}-{}".format(*ports["range"]) if ports["range"] else "of an unknown range"
    yield _line("free ports", span + ("" if ports["reserved"] else ", but none can be reserved"))


def _titled(title: str, rows: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Only the first row has the title."""
    for number, row in enumerate(rows.items()):
        yield ("" if number else title), row


def _line(title: str, text: str) -> str:
    return f"{title:<{_WIDTH}}{text}".rstrip()
