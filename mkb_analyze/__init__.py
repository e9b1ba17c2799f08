"""Whether a kernel agent's note helps or harms the next attempt, why, and which sentence is to blame."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkb_analyze.pictures import Picture
    from mkb_analyze.table import Table
    from mkb_analyze.transfers import Settings
    from mkb_analyze.view import View
    from runner.errors import UserError

__all__ = ["Picture", "Settings", "Table", "UserError", "View", "open"]

_HOMES = {
    "Picture": "mkb_analyze.pictures",
    "Settings": "mkb_analyze.transfers",
    "Table": "mkb_analyze.table",
    "UserError": "runner.errors",
    "View": "mkb_analyze.view",
}


def open(path: Any, **how: Any) -> "View":
    """Open a study for a notebook or a script; see `mkb_analyze.view.View` for `how`.

    Raises:
        UserError: there is no study, or a setting that cannot be.
    """
    from mkb_analyze.view import View

    return View(path, **how)


def __getattr__(name: str) -> Any:
    # The names are here from the start, their modules only when asked for: importing this package costs nothing.
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
