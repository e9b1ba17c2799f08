"""Compares the statistics with known answers, case by case and key by key."""

import json
import math
from pathlib import Path
from typing import Any

from tests.oracle import associations, models, pairs, raters

KINDS = {**raters.KINDS, **associations.KINDS, **pairs.KINDS, **models.KINDS}
RELATIVE, ABSOLUTE = 1e-8, 1e-12
SPECIAL = {"NaN": math.nan, "NA": math.nan, "error": math.nan, "Inf": math.inf, "-Inf": -math.inf}


def _number(value: Any) -> Any:
    if value is None:
        return math.nan
    return SPECIAL.get(value, value) if isinstance(value, str) else value


def differences(ours: Any, expected: Any, relative: float, path: str = "") -> list[str]:
    """Every place where the two differ, as "path: ours, expected"."""
    if isinstance(expected, dict):
        found = []
        for key, value in expected.items():
            if not isinstance(ours, dict) or key not in ours:
                found.append(f"{path}{key}: absent, expected {value}")
            else:
                found += differences(ours[key], value, relative, f"{path}{key}.")
        return found
    if isinstance(expected, list):
        ours = list(ours) if hasattr(ours, "__len__") and not isinstance(ours, str) else [ours]
        if len(ours) != len(expected):
            return [f"{path} {len(ours)} values, expected {len(expected)}"]
        pairs = enumerate(zip(ours, expected, strict=True))
        return [d for i, (o, e) in pairs for d in differences(o, e, relative, f"{path}{i}.")]
    ours, expected = _number(ours), _number(expected)
    if isinstance(expected, str):
        return [] if ours == expected else [f"{path} {ours!r}, expected {expected!r}"]
    if isinstance(expected, bool):
        return [] if bool(ours) == expected else [f"{path} {ours}, expected {expected}"]
    ours = float(ours)
    if math.isnan(expected) or math.isinf(expected):
        same = math.isnan(ours) if math.isnan(expected) else ours == expected
    else:
        same = abs(ours - expected) <= relative * abs(expected) + ABSOLUTE
    return [] if same else [f"{path} {ours!r}, expected {expected!r}"]


def check(case: dict[str, Any]) -> list[str] | None:
    """Differences of one case; None where its kind is not implemented."""
    mapping = KINDS.get(case["kind"])
    if mapping is None:
        return None
    ours = mapping(case["input"], case["expected"])
    expected = case["expected"]
    if set(expected) == {"error"}:
        value, reason = ours
        proven = math.isnan(value) and bool(reason)
        return [] if proven else [f"error: {value!r} ({reason!r}), expected NaN with a reason"]
    return differences(ours, expected, case.get("rel_tol", RELATIVE))


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m tests.oracle DIR; give the folder that holds the cases")
        return 2
    matched, differ, missing = 0, [], 0
    for path in sorted(Path(arguments[0]).glob("*.json")):
        case = json.loads(path.read_text())
        try:
            found = check(case)
        except Exception as error:  # noqa: BLE001 - one case that raises must not hide the others
            found = [f"raised {type(error).__name__}: {error}"]
        if found is None:
            missing += 1
        elif found:
            differ.append((case["id"], found))
        else:
            matched += 1
    for case_id, found in differ:
        print(f"{case_id}: " + "; ".join(found[:6]))
    print(f"{matched} matched, {len(differ)} differ, {missing} not implemented")
    return 1 if differ else 0
