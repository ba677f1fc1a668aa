"""Modules that are executed only when somebody first uses them.

Importing Keras imports matplotlib, for `keras.visualization`, and scikit-learn with much of scipy,
for `keras.wrappers`, where they are installed: a quarter of the time of all that a worker's process
imports. Few scripts use either.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_loading = threading.RLock()


@contextlib.contextmanager
def deferred(names: Collection[str]) -> Iterator[None]:
    """Defers these modules when they are imported in the block.

    Such a module is itself, with its name, file and path, but empty. The first look for anything
    else in it executes it, at any later time and in any thread. Its submodules are not deferred.

    Args:
      names: full names, of modules that nobody imports for what else their execution does.
    """
    finder = _Finder(frozenset(names))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Later(spec.loader)
        return spec


class _Later(Loader):
    """Has a module executed when something is looked for in it, by PEP 562."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._is_running = False

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        values = vars(module)

        def get(name: str) -> Any:
            # Whoever goes through all modules, as `inspect` does, asks for such names.
            if not (name.startswith("__") and name.endswith("__")) or name == "__all__":
                execute()
                if name in values:
                    return values[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        def names() -> list[str]:
            execute()
            return sorted(values)

        def execute() -> None:
            with _loading:
                if self._is_running or values.get("__getattr__") is not get:
                    return  # the module itself asks, or another thread has been quicker
                self._is_running = True
                try:
                    assert module.__spec__ is not None
                    module.__spec__.loader = module.__loader__ = self._loader
                    self._loader.exec_module(module)
                finally:  # after an error the next look tries again, as an import would
                    self._is_running = False
                for name, hook in (("__getattr__", get), ("__dir__", names)):
                    if values.get(name) is hook:
                        del values[name]

        values.update(__getattr__=get, __dir__=names)
