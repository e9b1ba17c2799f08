"""A whole study with known truth, of any size, marked synthetic in every output."""

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from annotators.progress import tracked
from annotators.records import Annotation, ClaimLabel, Rater
from annotators.rubric import Rubric, shipped
from mkb_analyze.simulate_labels import Labelled, dress, labels
from runner import catalogue, contract
from runner.errors import UserError
from runner.records import Arm, Attempt, Stage, Submission, Usage, Verdict
from runner.study import Study


@dataclass(frozen=True)
class Truth:
    """What is put into the data. Effects act on the log of the conditioned attempt's speedup.

    `closure_effect`: of a note that carries an unsupported label; `above_effect` / `below_effect`: of the source
    standing above / below the target solo; `attempt_sd`, `problem_sd`, `model_sd`: spreads of log speedup;
    `pass_share`: attempts that pass; `rater_accuracy`: share of claims that a simulated rater labels as they are.
    """

    closure_effect: float = -0.35
    above_effect: float = 0.30
    below_effect: float = -0.15
    attempt_sd: float = 0.35
    problem_sd: float = 0.5
    model_sd: float = 0.25
    pass_share: float = 0.8
    note_share: float = 0.98
    rater_accuracy: float = 0.85
    claims_per_note: int = 12
    closure_share: float = 0.4


def simulate(
    out: str | Path,
    rubric: Rubric,
    *,
    n_models: int = 2,
    n_problems: int = 74,
    n_replicates: int = 1,
    n_raters: int = 2,
    seed: int = 0,
    truth: Truth = Truth(),
) -> Study:
    """Write a synthetic study: solo and conditioned attempts of both directions, notes and annotations.

    The same arguments give the same bytes. The manifest says `synthetic` and holds the truth.

    Raises:
        UserError: a count below 1, or a folder that already holds a study.
    """
    for name, value in (("models", n_models), ("problems", n_problems), ("replicates", n_replicates)):
        if value < 1:
            raise UserError(f"--{name} {value}: at least 1 is due")
    if (Path(out) / "study.json").exists():
        raise UserError(f"{out}: a study is here already; give a new folder")
    study = Study.create(
        out,
        synthetic=True,
        truth=asdict(truth),
        origin={"kind": "simulate", "seed": seed},
        dsls=list(catalogue.STUDY_PAIR),
        device="simulated",
        baseline="simulated",
        contract=contract.settings(),
    )
    rng = np.random.default_rng(seed)
    raters = [_rater(rubric, k) for k in range(n_raters)]
    # A stream of its own: what is added beside the verdicts moves none of them.
    how = Labelled(
        shipped("attribution"),
        shipped("fate"),
        tuple(r.name for r in raters),
        np.random.default_rng([seed, 1]),
        truth.rater_accuracy,
    )
    model_effects = rng.normal(0, truth.model_sd, n_models)
    problem_effects = rng.normal(0.5, truth.problem_sd, n_problems)
    with study.writing():
        cells = itertools.product(range(n_models), range(n_problems))
        for m, p in tracked(cells, "simulate", n_models * n_problems):
            effect = model_effects[m] + problem_effects[p]
            made = list(_cell(study, rubric, rng, truth, f"simulated-{m + 1}", p + 1, n_replicates, effect, raters))
            _keep(study, how, rubric, made)
    return study


def _keep(study: Study, how: Labelled, rubric: Rubric, made: list[tuple[list[Attempt], list[Annotation]]]) -> None:
    """Write one cell's attempts with their kernels and next notes, and all labels."""
    annotations = [x for _, given in made for x in given]
    unsupported = frozenset(rubric.role("unsupported"))
    said: dict[str, list[str]] = {}
    for a in reversed(annotations):
        note = study.note(a.note_sha256)
        said[a.note_sha256] = [note[c.start : c.end] for c in a.claims if c.label in unsupported]
    attempts = [dress(study, how, a, said) for group, _ in made for a in group]
    study.append("attempts", attempts)
    if annotations:
        study.append("annotations", annotations)
        attributions, fates = labels(study, how, attempts, annotations, unsupported)
        study.append("attributions", attributions)
        study.append("fates", fates)


def _cell(
    study: Study,
    rubric: Rubric,
    rng: np.random.Generator,
    truth: Truth,
    model: str,
    problem: int,
    n_replicates: int,
    level: float,
    raters: list[Rater],
) -> Iterator[tuple[list[Attempt], list[Annotation]]]:
    pair = catalogue.STUDY_PAIR
    for replicate in range(1, n_replicates + 1):
        base = {
            "model": model,
            "problem": problem,
            "problem_name": f"simulated_{problem:02d}",
            "family": catalogue.family_of(problem) or catalogue.FAMILIES[problem % len(catalogue.FAMILIES)],
            "replicate": replicate,
        }
        solos: dict[str, tuple[float | None, Attempt, bool]] = {}
        attempts: list[Attempt] = []
        annotations: list[Annotation] = []
        for dsl in pair:
            log_speed = _log_speed(rng, truth, level)
            sha, closed, labels = _note(study, rubric, rng, truth, raters, model, problem, replicate, dsl)
            annotations += labels
            solo = Attempt(**base, dsl=dsl, arm=Arm.SOLO, note_sha256=sha, **_outcome(rng, log_speed))
            solos[dsl] = (log_speed, solo, closed)
            attempts.append(solo)
        for source, target in (pair, pair[::-1]):
            attempts.append(_conditioned(base, rng, truth, level, source, target, solos))
        yield attempts, annotations


def _conditioned(
    base: dict[str, Any],
    rng: np.random.Generator,
    truth: Truth,
    level: float,
    source: str,
    target: str,
    solos: dict[str, tuple[float | None, Attempt, bool]],
) -> Attempt:
    source_speed, source_solo, closed = solos[source]
    target_speed = solos[target][0]
    arm = {**base, "dsl": target, "arm": Arm.CONDITIONED, "source_dsl": source, "generation": 1}
    if source_solo.note_sha256 is None:
        return Attempt(**arm, state="skipped", reason="the source left no note")
    rank = [-math.inf if s is None else s for s in (source_speed, target_speed)]
    shift = truth.above_effect if rank[0] > rank[1] else truth.below_effect if rank[0] < rank[1] else 0.0
    shift += truth.closure_effect if closed else 0.0
    log_speed = _log_speed(rng, truth, level)
    return Attempt(
        **arm,
        source_note_sha256=source_solo.note_sha256,
        **_outcome(rng, None if log_speed is None else log_speed + shift),
    )


def _log_speed(rng: np.random.Generator, truth: Truth, level: float) -> float | None:
    passed, noise = rng.random() < truth.pass_share, rng.normal(0, truth.attempt_sd)
    return level + noise if passed else None


def _outcome(rng: np.random.Generator, log_speed: float | None) -> dict[str, Any]:
    usage = Usage(
        n_input_tokens=int(rng.integers(20_000, 200_000)),
        n_output_tokens=int(rng.integers(5_000, 50_000)),
        agent_s=round(float(rng.uniform(300, 2400)), 1),
    )
    if log_speed is None:
        verdict = Verdict(passed=False, stage=Stage.CORRECTNESS, reason="wrong result (simulated)")
        return {"verdict": verdict, "usage": usage, "submissions": (Submission(index=1, verdict=verdict),)}
    reference_ms, speedup = 1.0, round(math.exp(log_speed), 6)
    verdict = Verdict(
        passed=True,
        stage=Stage.DONE,
        kernel_ms=round(reference_ms / speedup, 9),
        reference_ms=reference_ms,
        speedup=speedup,
    )
    return {"verdict": verdict, "usage": usage, "submissions": (Submission(index=1, verdict=verdict),)}


def _note(
    study: Study,
    rubric: Rubric,
    rng: np.random.Generator,
    truth: Truth,
    raters: list[Rater],
    model: str,
    problem: int,
    replicate: int,
    dsl: str,
) -> tuple[str | None, bool, list[Annotation]]:
    """A note with its true labels; returns its digest (None: no note), whether it is closed, and the annotations."""
    if rng.random() >= truth.note_share:
        return None, False, []
    unsupported = set(rubric.role("unsupported"))
    open_labels = [x.id for x in rubric.labels if x.id not in unsupported]
    closed = bool(rng.random() < truth.closure_share)
    labels = [open_labels[k] for k in rng.integers(0, len(open_labels), truth.claims_per_note)]
    if closed:
        labels[int(rng.integers(0, len(labels)))] = sorted(unsupported)[int(rng.integers(0, len(unsupported)))]
    head = f"# Simulated note: {model}, problem {problem}, replicate {replicate}, {dsl}\n\n"
    lines = [f"- Simulated claim {i + 1} of kind {label.replace('_', ' ')}." for i, label in enumerate(labels)]
    text = head + "\n".join(lines) + "\n"
    sha = study.put_text("notes", text)
    spans, at = [], len(head)
    for line in lines:
        spans.append((at + 2, at + len(line)))
        at += len(line) + 1
    answers = rubric.answers
    out = []
    for rater in raters:
        wrong = rng.random(len(labels)) >= truth.rater_accuracy
        others = rng.integers(0, len(answers), len(labels))
        said = [answers[o] if w else label for w, o, label in zip(wrong, others, labels, strict=False)]
        out.append(
            Annotation(
                note_sha256=sha,
                rater=rater,
                claims=tuple(
                    ClaimLabel(start=a, end=b, label=label) for (a, b), label in zip(spans, said, strict=False)
                ),
            )
        )
    return sha, closed, out


def _rater(rubric: Rubric, k: int) -> Rater:
    return Rater(kind="file", name=f"simulated-rater-{k + 1}", rubric_id=rubric.id, rubric_sha256=rubric.sha256)


def is_synthetic(study: Study) -> bool:
    """Whether a study was simulated: reports, tables and exports say so."""
    return bool(study.manifest.get("synthetic"))


def truth_of(study: Study) -> dict[str, Any]:
    """The truth that was put into a simulated study."""
    return json.loads(json.dumps(study.manifest.get("truth", {})))
