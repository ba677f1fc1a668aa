"""Values that travel as JSON between tfrun's processes, and are checked when they arrive."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


_TYPES: dict[str, tuple[type, ...]] = {
    **{"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)},
    **{"list": (list,), "dict": (dict,)},
}


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """Base of these values: each subclass is a frozen dataclass, and `kind` names it on its way.

    Comparing and showing stand here: generating them for each of fifty classes is most of the time
    that importing them would take.
    """

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self) -> str:
        stated = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({stated})"


class Field(NamedTuple):
    """What a record says of one of its fields."""

    type: str
    item: str
    admits_none: bool
    has_default: bool
    is_optional: bool  # None is the default

    def admits(self, value: Any) -> bool:
        """True for a value of the field's type, as JSON has it."""
        if value is None:
            return self.admits_none
        return _is_of(value, self.type) and (
            not self.item or all(_is_of(each, self.item) for each in value)
        )


@functools.cache
def fields_of(cls: type[Record]) -> Mapping[str, Field]:
    """Returns a record's fields by their names, in their order."""
    found = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        stated, optional, _ = str(field.type).partition(" | None")
        name, _, item = stated.removesuffix("]").partition("[")
        missing = field.default is field.default_factory  # `dataclasses.MISSING`, both
        found[field.name] = Field(name, item, bool(optional), not missing, field.default is None)
    return found


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool):  # an int to Python, not here
        return name == "bool"
    return isinstance(value, _TYPES[name])
