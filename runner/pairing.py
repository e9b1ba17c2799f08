"""Which attempts belong together: source solo, target solo and conditioned attempt of one cell and replicate."""

from collections.abc import Iterable
from dataclasses import dataclass

from runner.records import Arm, Attempt, State


@dataclass(frozen=True)
class Triple:
    """One transfer's attempts; `reason` says why it is unresolved, None where all that is due has a verdict.

    A skipped conditioned attempt (its source left no note) resolves as its target solo. From the second generation
    on, the source is the conditioned attempt of the generation before.
    """

    model: str
    problem: int
    problem_name: str | None
    family: str | None
    source_dsl: str
    target_dsl: str
    replicate: int
    generation: int
    source: Attempt | None
    target_solo: Attempt | None
    conditioned: Attempt | None
    skipped: bool
    reason: str | None


def transfers(attempts: Iterable[Attempt]) -> list[Triple]:
    """Every transfer that a study began, ordered by model, problem, direction, replicate and generation.

    A direction is begun by its conditioned attempt, or by two solos of one cell and replicate in two DSLs. A/A twins
    and ablations belong to no transfer.
    """
    solos: dict[tuple, Attempt] = {}
    conditioned: dict[tuple, Attempt] = {}
    for a in attempts:
        if not a.ordinary:
            continue
        cell = (a.model, a.problem, a.replicate)
        if a.arm is Arm.SOLO:
            solos[(*cell, a.dsl)] = a
        else:
            conditioned[(*cell, a.source_dsl, a.dsl, max(a.generation, 1))] = a
    keys = set(conditioned)
    dsls: dict[tuple, set[str]] = {}
    for *cell, dsl in solos:
        dsls.setdefault(tuple(cell), set()).add(dsl)
    for cell, have in dsls.items():
        keys |= {(*cell, s, t, 1) for s in have for t in have if s != t}
    return [_triple(key, solos, conditioned) for key in sorted(keys)]


def _triple(key: tuple, solos: dict[tuple, Attempt], conditioned: dict[tuple, Attempt]) -> Triple:
    model, problem, replicate, source_dsl, target_dsl, generation = key
    source = (
        solos.get((model, problem, replicate, source_dsl))
        if generation == 1
        else conditioned.get((model, problem, replicate, target_dsl, source_dsl, generation - 1))
    )
    target = solos.get((model, problem, replicate, target_dsl))
    final = conditioned.get(key)
    known = next((a for a in (final, target, source) if a is not None), None)
    skipped = final is not None and final.state is State.SKIPPED
    return Triple(
        model,
        problem,
        known.problem_name if known else None,
        known.family if known else None,
        source_dsl,
        target_dsl,
        replicate,
        generation,
        source,
        target,
        final,
        skipped,
        _lacking(source, target, final),
    )


def _lacking(source: Attempt | None, target: Attempt | None, final: Attempt | None) -> str | None:
    for name, attempt in (("source solo", source), ("target solo", target), ("conditioned attempt", final)):
        if attempt is None:
            return f"{name} is missing"
        if attempt.state is State.ERROR:
            return f"{name} broke: {attempt.reason}"
        if attempt.state is State.FINISHED and attempt.verdict is None:
            return f"{name} has no verdict"
    return None
