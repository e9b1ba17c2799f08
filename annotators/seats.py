"""Who sits on a panel: from a list of raters or a panel file to seats, each one rater at one repeat."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from annotators import raters as raters_
from annotators.engine import Seat
from runner import plain_yaml
from runner import prices as prices_
from runner.errors import UserError
from runner.limits import Budget, Limits

N_REPEATS_MOST = 100
VARIED = 0.7  # temperature of a rater that is asked more than once, where none is given: at 0 repeats would be echoes
_CAPS = ("max_usd", "max_tokens", "max_requests")
_ENTRY = ("rater", "repeats", "temperature", "seed", "base_url", "threshold", "model_file")


def seats(
    chosen: str | Path | Sequence[str],
    *,
    repeats: int = 1,
    limits: Limits | None = None,
    budget: Budget | None = None,
    base_url: str | None = None,
    prices: str | Path | None = None,
    temperature: float | None = None,
    seed: int = 1,
) -> tuple[list[Seat], Budget]:
    """The seats of a panel and the purse that they share.

    Args:
        chosen: rater names (`embedded`, `openai:MODEL`, `file:PATH`), one name, or a panel file (.yaml, .yml): `raters`
            (names, or mappings with rater, repeats, temperature, seed, base_url, threshold, limits), `limits`,
            `prices`.
        temperature: None means 0 for a single answer and `VARIED` for repeats.

    Raises:
        UserError: a rater that cannot be made, a panel file that is none, a rater named twice.
    """
    limits = limits or Limits()
    entries: list[dict[str, Any]] = []
    if isinstance(chosen, (str, Path)) and str(chosen).endswith((".yaml", ".yml")):
        entries, limits, named_prices = _panel_file(Path(chosen), limits)
        prices = prices or named_prices
    else:
        names = [chosen] if isinstance(chosen, (str, Path)) else list(chosen)
        entries = [{"rater": str(name).strip()} for name in names]
    if not entries:
        raise UserError("--rater: at least one rater is due: embedded, openai:MODEL, file:PATH or a panel file")
    if twice := {e["rater"] for e in entries if [x["rater"] for x in entries].count(e["rater"]) > 1}:
        raise UserError(f"rater {sorted(twice)[0]}: named twice; use repeats to ask one rater more than once")
    known = prices_.load(prices) if prices else {}
    budget = budget or Budget(limits)
    out: list[Seat] = []
    for entry in entries:
        n = _whole(entry.get("repeats", repeats), "repeats", N_REPEATS_MOST)
        own = _limits(limits, entry.get("limits"), entry["rater"])
        heat = _share(entry.get("temperature", temperature), "temperature", 2)
        rater = raters_.make(
            entry["rater"],
            limits=own,
            budget=budget,
            base_url=_text(entry.get("base_url", base_url), "base_url"),
            prices=known,
            temperature=(0.0 if n == 1 else VARIED) if heat is None else heat,
            seed=_whole(entry.get("seed", seed), "seed"),
            threshold=_share(entry.get("threshold"), "threshold", 1),
            model_file=_text(entry.get("model_file"), "model_file"),
        )
        # A rater that computes gives the same labels each time: one seat, however many repeats were asked for.
        out += [Seat(rater, k, own) for k in range(1, (1 if hasattr(rater, "rate_many") else n) + 1)]
    return out, budget


def _panel_file(path: Path, limits: Limits) -> tuple[list[dict[str, Any]], Limits, Path | None]:
    data = plain_yaml.load(path, "a panel file; see docs/raters.md")
    if not isinstance(data, dict) or not isinstance(data.get("raters"), list):
        raise UserError(f"{path}: a panel file has a list `raters`; see docs/raters.md")
    if unknown := sorted(set(map(str, data)) - {"raters", "limits", "prices"}):
        raise UserError(f"{path}: {unknown[0]}: a panel file has raters, limits and prices")
    entries = [{"rater": e} if isinstance(e, str) else e for e in data["raters"]]
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("rater"), str):
            raise UserError(f"{path}: raters: each is a name, or a mapping with `rater`; see docs/raters.md")
        if unknown := sorted(set(map(str, entry)) - {*_ENTRY, "limits"}):
            raise UserError(f"{path}: {entry['rater']}: {unknown[0]}: it has {', '.join(_ENTRY)} and limits")
    prices = data.get("prices")
    return entries, _limits(limits, data.get("limits"), path), path.parent / str(prices) if prices else None


def _limits(base: Limits, given: Any, where: Any) -> Limits:
    """The limits with what a file gives instead; caps are one purse for the whole panel and stand at its top alone."""
    if given is None:
        return base
    names = {f.name for f in fields(Limits)}
    if not isinstance(given, dict) or set(given) - names:
        wrong = sorted(set(map(str, given)) - names)[0] if isinstance(given, dict) else given
        raise UserError(f"{where}: limits: {wrong}: one of {', '.join(sorted(names))} is due")
    if isinstance(where, str) and set(given) & set(_CAPS):
        raise UserError(
            f"{where}: limits: {sorted(set(given) & set(_CAPS))[0]}: the panel has one purse; set it at the file's top"
        )
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise UserError(f"{where}: limits: {name}: {value!r} is no number")
    return replace(base, **given)


def _whole(value: Any, name: str, most: int = 2**63 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise UserError(f"{name} {str(value)[:60]}: a whole number from 1 to {most} is due")
    return value


def _share(value: Any, name: str, most: float) -> float | None:
    """A number from 0 to `most`, or None where none was given."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise UserError(f"{name} {str(value)[:60]!r}: a number from 0 to {most:g} is due")
    return float(value)


def _text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, (str, Path)):
        raise UserError(f"{name} {str(value)[:60]!r}: a text is due")
    return None if value is None else str(value)
