"""The text of a flag as a number, a switch or a list; a UserError says value, rule and cure."""

from pathlib import Path
from typing import Any

from runner.errors import UserError

_TRUE, _FALSE = {"true", "yes", "1", "on"}, {"false", "no", "0", "off", "none", ""}


def number(value: Any, name: str, kind: type = float, low: float | None = None) -> Any:
    """A finite number of at least `low`; None stays None."""
    if value is None:
        return None
    try:
        result = kind(str(value))
    except (ValueError, OverflowError):
        raise UserError(f"--{name} {value}: a {'whole number' if kind is int else 'number'} is due") from None
    if result != result or result in (float("inf"), float("-inf")):
        raise UserError(f"--{name} {value}: a finite number is due")
    if low is not None and result < low:
        raise UserError(f"--{name} {value}: at least {low:g} is due")
    return result


def switch(value: Any, name: str) -> bool:
    """Yes or no."""
    if isinstance(value, bool):
        return value
    if str(value).lower() in _TRUE:
        return True
    if str(value).lower() in _FALSE:
        return False
    raise UserError(f"--{name} {value}: yes or no is due")


def folder(value: Any) -> Path | None:
    """A folder's path; None where none was given."""
    return None if value is None else Path(str(value))


def names(value: Any) -> list[str]:
    """A comma list as its parts."""
    return [part.strip() for part in str(value).split(",") if part.strip()]
