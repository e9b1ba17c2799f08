"""DSLs by name: one file each in this folder says how a DSL is found, hooked and recognised."""

import importlib
import importlib.util
import pkgutil
from functools import cache
from importlib import metadata
from types import ModuleType

from runner.errors import UserError


@cache
def names() -> tuple[str, ...]:
    """Every DSL that has a file here, in alphabetical order."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def plugin(name: str) -> ModuleType:
    """The DSL's file as a module; UserError when there is none of that name."""
    if name not in names():
        raise UserError(f"{name!r}: no such DSL; there are {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{name}")


def installed(package: str, *distributions: str) -> dict[str, str]:
    """Versions of the distributions that are there, without importing any of them."""
    found = {}
    for name in distributions:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if not found and importlib.util.find_spec(package) is not None:
        found[package] = "unknown"
    return found
