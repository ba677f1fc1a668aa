"""Scripts as other people write them: what is expected of each, and the numbers that it prints.

A script says in comments on its first lines what is expected of it:

    # after: whose style it is in
    # expects: equal                    the numbers it prints are those of one worker
    # expects: equal to 1e-4: why       as far as that (float32, say)
    # expects: near 0.3: why            they differ by nature; all workers hold the same weights
    # floatx: float32: why              it cannot be run in float64
    # options: --ps 1                   for tfrun
    # not compared: a name, another     what differs by nature, such as the number of replicas
    # shows: a regular expression       of lines with warnings that are meant to be there
    # waits for: what is to be mended   until then the test may fail
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

PEOPLE = Path(__file__).parent / "people"
ALWAYS = ("imbalanced.py", "tf_custom_training.py", "generator.py", "guide_endpoint.py")
SHARES = 20
TOLERANCE = {"float64": 1e-6, "float32": 1e-4}
# `loss = 0.25`, `Epoch 1, Loss: 0.25`, with the digits that were printed.
NUMBER = re.compile(
    r"(?<![\w./])([A-Za-z_][\w \[\]/-]*?)\s*[:=]\s*"
    r"([-+]?(?:\d+\.?(\d*)(?:[eE][-+]?\d+)?|nan|inf))(?![\w.])"
)
PROGRESS = re.compile(r"s/step|\x1b|━|^Epoch \d+/\d+$")
WARNING = re.compile(
    r"(?i:\bwarn|\berror|\bdeprecat|\bfail|\bdiffer)|Error\b|Warning\b|Exception|Traceback|TFRUN-\d"
    r"|not quite what a single worker"
)
# What TensorFlow's runtime says, and what logs through it: also where nothing is wrong.
ABSL = re.compile(r"^WARNING: All log messages before absl|^[EIW]\d{4} ")
LOGGED = re.compile(r"^[EIW]\d{4} |^(INFO|WARNING|ERROR):")
NAMELESS = re.compile(r"0x[0-9a-f]+|\d+")


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is expected of a script.

    Attributes:
      after: whose style it is in.
      tolerance: how far a number may be from that of one worker, relative.
      same: whether that is rounding, not another sample or noise.
      floatx: Keras's float type.
      options: for tfrun.
      not_compared: names of numbers that differ by nature.
      shows: what lines with warnings may say.
      waits_for: what has to be mended first, or "".
    """

    after: str
    tolerance: float
    same: bool
    floatx: str
    options: tuple[str, ...]
    not_compared: frozenset[str]
    shows: tuple[str, ...]
    waits_for: str


def expected(text: str) -> Expected:
    """Reads from a script's first lines what is expected of it.

    Raises:
      ValueError: a line is missing, or says what nobody understands.
    """
    said: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            break
        name, colon, value = line.removeprefix("# ").partition(": ")
        if not colon or name not in HEADER:
            raise ValueError(f"Expected one of {', '.join(HEADER)} and a colon. Received: {line}")
        said.setdefault(name, []).append(value.strip())
    floatx = said.get("floatx", ["float64"])[0].partition(":")[0]
    found = re.fullmatch(r"(equal|near)(?: (?:to )?(\S+?))?(?:: (.+))?", said["expects"][0])
    if not found or (found[2] and not found[3]) or (found[1] == "near" and not found[2]):
        raise ValueError(f"Expected `equal` or a number and a reason. Received: {said['expects']}")
    return Expected(
        after=said["after"][0],
        tolerance=float(found[2] or TOLERANCE[floatx]),
        same=found[1] == "equal",
        floatx=floatx,
        options=tuple(" ".join(said.get("options", [])).split()),
        not_compared=frozenset(
            name.strip() for names in said.get("not compared", []) for name in names.split(",")
        ),
        shows=tuple(said.get("shows", [])),
        waits_for=", ".join(said.get("waits for", [])),
    )


HEADER = ("after", "expects", "floatx", "options", "not compared", "shows", "waits for")


@dataclass(frozen=True)
class Number:
    """A number that a script has printed: its name, its value, the size of its last digit."""

    name: str
    value: float
    unit: float


def numbers_of(output: str) -> list[Number]:
    """Returns the numbers that are printed with a name, without Keras's progress."""
    return [
        Number(name.strip(), float(text), _last_digit(text, digits))
        for line in output.splitlines()
        if not PROGRESS.search(line) and not LOGGED.search(line)
        for name, text, digits in NUMBER.findall(line)
    ]


def _last_digit(text: str, digits: str) -> float:
    """Returns what one more in the last printed digit is; of a whole number nothing is rounded."""
    _, _, exponent = text.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits)) if digits else 0.0


def differences(one: list[Number], many: list[Number], tolerance: float) -> list[str]:
    """Says in which numbers two runs differ by more than `tolerance`, relative, and rounding."""
    names = [[number.name for number in numbers] for numbers in (one, many)]
    if names[0] != names[1]:
        return [f"printed {names[1]} instead of {names[0]}"]
    return [
        f"{a.name} = {b.value!r} instead of {a.value!r}"
        for a, b in zip(one, many, strict=True)
        if not _close(a, b, tolerance)
    ]


def _close(a: Number, b: Number, tolerance: float) -> bool:
    if not (math.isfinite(a.value) and math.isfinite(b.value)):
        return False
    scale = max(abs(a.value), abs(b.value))
    return abs(a.value - b.value) <= max(tolerance * scale, 1e-9, 1.01 * max(a.unit, b.unit))


def disagreements(chief: list[Number], other: list[Number]) -> list[str]:
    """Says which numbers of a worker differ from the chief's; a worker may print fewer."""
    found = []
    for name in dict.fromkeys(number.name for number in other):
        mine, chiefs = ([n for n in numbers if n.name == name] for numbers in (other, chief))
        found += differences(chiefs, mine, 1e-9)
    return found


def warnings_in(output: str, shows: tuple[str, ...] = ()) -> list[str]:
    """Returns the lines that speak of something wrong, without those that are meant to be there."""
    return [
        line
        for line in output.splitlines()
        if WARNING.search(NUMBER.sub("", line))
        and not ABSL.search(line)
        and not PROGRESS.search(line)
        and not any(re.search(pattern, line) for pattern in shows)
    ]


def new_warnings(one: list[str], many: list[str]) -> list[str]:
    """Returns the warnings of many workers that one worker does not give, whatever their numbers;
    of one worker's, those that are not TensorFlow's, Keras's or Python's."""
    known = {NAMELESS.sub("#", line) for line in one}
    ours = [line for line in one if re.search(r"^tfrun:|TFRUN-\d|^Traceback", line)]
    return ours + [line for line in many if NAMELESS.sub("#", line) not in known]
