"""Sends functions and values to other processes, and finds what in them cannot be sent.

Functions and classes that another process could not import, as those of a notebook, travel with
their code (cloudpickle); all others by their names.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import marshal
import os
import pickle
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle

_INSTALLED = tuple(
    f"{os.path.realpath(path)}{os.sep}"
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_paths().get(name))
)


def pickled(value: Any, most: int | None = None) -> tuple[bytes, dict[str, list[str]]]:
    """Returns a value as bytes, and the source of the code in it that is in no file.

    Args:
      value: what is sent.
      most: bytes; more raise ValueError.

    Raises:
      Exception: of any kind: it cannot be sent.
    """
    with _modules_by_value():
        return _pickled(value, most)


def _pickled(value: Any, most: int | None = None) -> tuple[bytes, dict[str, list[str]]]:
    file = _Bounded(most)
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), pickler.sources


class _Bounded(io.BytesIO):
    """Takes as many bytes as it may."""

    def __init__(self, most: int | None) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Any, /) -> int:
        if self._most is not None and self.tell() + len(data) > self._most:
            raise ValueError(f"more than {self._most:,} bytes")
        return super().write(data)


class _Pickler(cloudpickle.Pickler):
    """As cloudpickle's, but for two things.

    Open files are refused: it would send a copy of what is in them. Code keeps the name of its
    file, which it would lose: AutoGraph needs it, and whoever reads a traceback.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.DEFAULT_PROTOCOL)
        self.sources: dict[str, list[str]] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, io.IOBase) and not isinstance(obj, io.StringIO | io.BytesIO):
            for name in ("stdout", "stderr"):
                if obj is getattr(sys, name):
                    return getattr, (sys, name)
            raise pickle.PicklingError("an open file is this process's own")
        if isinstance(obj, CodeType):
            # Of a notebook's cell nobody has the lines but this process.
            if (name := obj.co_filename) not in self.sources and not Path(name).is_file():
                self.sources[name] = linecache.getlines(name)
            return marshal.loads, (marshal.dumps(obj),)
        return super().reducer_override(obj)


@contextlib.contextmanager
def _modules_by_value() -> Iterator[None]:
    """While it lasts, code of modules that a new process would not find travels with them."""
    known = {module.__name__ for module in _own_modules() if not _is_found(module)}
    known -= cloudpickle.list_registry_pickle_by_value()
    for name in known:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        yield
    finally:
        for name in known:
            cloudpickle.unregister_pickle_by_value(sys.modules[name])


def _own_modules() -> list[ModuleType]:
    """Those that no package has brought, and that are known under their names."""
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name in ("__main__", "__mp_main__"):
            continue
        if getattr(module, "__name__", None) == name and not is_installed(file):
            found.append(module)
    return found


@functools.lru_cache(maxsize=8192)
def is_installed(file: str) -> bool:
    """Whether a file is of Python's own library, or of a package that was installed."""
    return os.path.realpath(file).startswith(_INSTALLED)


def _is_found(module: ModuleType) -> bool:
    """Whether an import would find this module's file, as in a process that has not imported it."""
    parts, path, spec = module.__name__.split("."), None, None
    for end in range(1, len(parts) + 1):
        spec = _spec(".".join(parts[:end]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    origin = spec and spec.origin
    return bool(origin) and os.path.realpath(origin) == os.path.realpath(module.__file__ or "")


def _spec(name: str, path: Any) -> Any:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        with contextlib.suppress(Exception):  # somebody's own finder
            if find and (spec := find(name, path)) is not None:
                return spec
    return None


def culprit(value: Any, name: str) -> tuple[list[str], Any, str]:
    """Finds what cannot be sent in a value that cannot.

    Args:
      value: what `pickled` has raised for.
      name: what a person calls it.

    Returns:
      The names on the way to it, from `name` on; the object itself; and why, as one clause.
    """
    with _modules_by_value():
        return _culprit(value, name)


def _culprit(value: Any, name: str) -> tuple[list[str], Any, str]:
    way, reason, seen = [name], _why_not(value) or "", {id(value)}
    while True:
        for called, part in _parts(value):
            if id(part) not in seen:
                seen.add(id(part))
                if why := _why_not(part):
                    way.append(called)
                    value, reason = part, why
                    break
        else:
            return way, value, reason


def _why_not(value: Any) -> str | None:
    try:
        _pickled(value)
    except Exception as error:
        text = str(error).strip().splitlines()
        return text[0][:300] if text else type(error).__name__
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields what is sent with a value, by names."""
    if isinstance(value, MethodType):
        yield from (("its object", value.__self__), (value.__func__.__name__, value.__func__))
    elif isinstance(value, FunctionType):
        yield from _used_by(value)
    elif isinstance(value, functools.partial):
        yield from (("its function", value.func), ("its arguments", value.args))
        yield "its arguments", value.keywords
    elif isinstance(value, dict):
        yield from ((f"[{key!r:.40}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{number}]", part) for number, part in enumerate(value))
    elif not isinstance(value, ModuleType):
        with contextlib.suppress(Exception):  # an object of somebody's own may do anything here
            yield from ((f".{name}", part) for name, part in vars(value).items())


def _used_by(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields a function's variables of outer functions and of its module, and its defaults."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # it is empty
            yield name, cell.cell_contents
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    yield from (("a default value", each) for each in defaults)
    yield from vars(function).items()


def _names(code: CodeType) -> set[str]:
    inner = (_names(const) for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*inner)


def show_sources(sources: dict[str, list[str]]) -> None:
    """Has this process know the lines of code that is in no file."""
    for name, lines in sources.items():
        if lines:
            linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
