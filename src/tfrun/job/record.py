"""Values that travel as JSON between tfrun's processes, and are checked when they arrive."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


R = TypeVar("R", bound="Record")
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
    kinds: ClassVar[dict[str, type[Any]]]  # below `Report`, or below another such base

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)(cls)
        if not hasattr(cls, "kinds"):
            cls.kinds = {}
        elif cls.kind:
            cls.kinds[cls.kind] = cls

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


def made(base: type[R], kind: Any, values: Mapping[str, Any], *, exact: bool = False) -> R:
    """Makes the record below `base` that `kind` names, of values that have arrived.

    Values of no field are left out, and fields with a default may lack; not so with `exact`.

    Raises:
      ValueError: there is no such kind, or a value is not of its field's type.
    """
    cls = base.kinds.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ValueError(f"unknown kind {kind!r:.60}")
    fields, found = fields_of(cls), {}
    if exact and set(values) != set(fields):
        raise ValueError(f"fields of {kind!r} differ: {sorted(set(values) ^ set(fields))!r:.200}")
    for name, stated in fields.items():
        if name in values or not stated.has_default:
            found[name] = value = values.get(name)
            if not stated.admits(value):
                raise ValueError(f"field {name!r} of {kind!r} is not of type {stated.type}")
    return cls(**found)


def _is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool):  # an int to Python, not here
        return name == "bool"
    return isinstance(value, _TYPES[name])
