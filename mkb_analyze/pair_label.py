"""The sentence that labels results outside the study's own pair of DSLs, wherever they are shown."""

from collections.abc import Iterable

from runner.catalogue import STUDY_PAIR


def outside_pair(dsls: Iterable[str]) -> str | None:
    """The label for results in any DSL besides CuTe DSL and TIRx; None where there is none."""
    others = sorted(set(dsls) - set(STUDY_PAIR))
    if not others:
        return None
    return f"Outside the study's pair {' and '.join(STUDY_PAIR)}: {', '.join(others)}; these results do not extend it."
