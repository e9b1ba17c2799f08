"""Attempts from kernels and notes on disk: each submission graded, the attempt recorded: how studies are made by hand.

One attempt is one folder, named as the attempt is addressed:

    <root>/<model>/p28_r1_solo_tirx/           s1.py s2.py … final.py SKILL.md
    <root>/<model>/p28_r1_cutedsl2tirx/        the same; its note is the SKILL.md of p28_r1_solo_cutedsl

`verdicts.jsonl` in the root keeps every verdict by problem, DSL and kernel digest, so that grading can be done on one
machine (with the GPU) and resumed: a kernel that has its verdict is not graded again.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import catalogue, digests, dsls, plain_json
from runner.errors import UserError
from runner.records import Arm, Attempt, State, Submission, Verdict
from runner.study import Study, set_aside_torn_tail

_FOLDER = re.compile(r"p(\d{1,3})_r(\d{1,4})_(?:solo_([a-z0-9]+)|([a-z0-9]+)2([a-z0-9]+))")
_SUBMISSION = re.compile(r"s(\d+)\.py")
Grade = Callable[[catalogue.Problem, str, Path], Verdict]


@dataclass(frozen=True)
class Folder:
    """One attempt's folder with what its name says."""

    path: Path
    model: str
    problem: int
    replicate: int
    dsl: str
    source_dsl: str | None

    def submissions(self) -> list[tuple[int, Path]]:
        found = [(int(m[1]), p) for p in self.path.iterdir() if (m := _SUBMISSION.fullmatch(p.name))]
        return sorted(found)


def folders(root: Path) -> list[Folder]:
    """Every attempt's folder below the root, solo ones first; UserError names a folder that has no such name."""
    found = []
    for model in sorted(p for p in root.iterdir() if p.is_dir()):
        for path in sorted(p for p in model.iterdir() if p.is_dir()):
            match = _FOLDER.fullmatch(path.name)
            if not match:
                raise UserError(f"{path}: no attempt has that name; use pNN_rK_solo_DSL or pNN_rK_SOURCE2TARGET")
            found.append(Folder(path, model.name, int(match[1]), int(match[2]), match[3] or match[5], match[4]))
    if not found:
        raise UserError(f"{root}: holds no attempt; one attempt is a folder MODEL/pNN_rK_solo_DSL")
    return sorted(found, key=lambda f: (f.source_dsl is not None, f.path))


def record(root: Path, study: Study, grade: Grade) -> Iterator[Attempt]:
    """Grade what has no verdict yet, and append each attempt that the study lacks; yields the attempts appended."""
    known = {a.key: a.line() for a in study.attempts()}
    verdicts = Verdicts(root / "verdicts.jsonl")
    notes = {(f.model, f.problem, f.replicate, f.dsl): _note(f) for f in folders(root) if f.source_dsl is None}
    for folder in folders(root):
        attempt = _attempt(folder, study, verdicts, grade, notes)
        if known.get(attempt.key) != attempt.line():
            study.append("attempts", attempt)
            yield attempt


def grade_all(root: Path, grade: Grade) -> Iterator[tuple[Path, Verdict]]:
    """Grade every kernel below the root that has no verdict yet, appending to `verdicts.jsonl` at once."""
    verdicts = Verdicts(root / "verdicts.jsonl")
    for folder in folders(root):
        for path in [p for _, p in folder.submissions()] + [p for p in (folder.path / "final.py",) if p.exists()]:
            before = verdicts.n
            verdict = verdicts.of(folder, path, grade)
            if verdicts.n > before:
                yield path, verdict


class Verdicts:
    """Verdicts on disk by problem, DSL and kernel digest; one line each, appended the moment it is known."""

    def __init__(self, path: Path):
        self.path = path
        self.known: dict[tuple[int, str, str], list[Verdict]] = {}
        self.n = 0
        if path.exists():
            set_aside_torn_tail(path)
            for number, line in enumerate(path.read_bytes().splitlines(), 1):
                try:
                    value = plain_json.loads(line)
                    key = (value["problem"], value["dsl"], value["kernel_sha256"])
                    self.known.setdefault(key, []).append(Verdict.model_validate(value["verdict"]))
                except (ValueError, KeyError, TypeError) as fault:
                    told = " ".join(str(fault).split())[:200]
                    raise UserError(f"{path}:{number}: no verdict ({told}); mend or delete that line") from None

    def of(self, folder: Folder, kernel: Path, grade: Grade, latest: bool = False) -> Verdict:
        """The first verdict of that kernel (what a submission was shown) or the latest (the final grading).

        It is graded now where there is none.
        """
        text = kernel.read_text("utf-8")
        key = (folder.problem, folder.dsl, digests.of_text(text))
        if key not in self.known:
            verdict = grade(catalogue.problem(folder.problem), folder.dsl, kernel)
            self.add(key, verdict)
        return self.known[key][-1 if latest else 0]

    def add(self, key: tuple[int, str, str], verdict: Verdict) -> None:
        self.known.setdefault(key, []).append(verdict)
        self.n += 1
        line = {"problem": key[0], "dsl": key[1], "kernel_sha256": key[2], "verdict": verdict.line()}
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, sort_keys=True) + "\n")

    def repeats(self, key: tuple[int, str, str]) -> list[float]:
        """Kernel medians (ms) of every passed verdict of one kernel: the A/A spread."""
        return [v.kernel_ms for v in self.known.get(key, ()) if v.passed]


def _note(folder: Folder) -> str | None:
    path = folder.path / "SKILL.md"
    text = path.read_text("utf-8") if path.exists() else None
    return text if text and text.strip() else None


def _attempt(folder: Folder, study: Study, verdicts: Verdicts, grade: Grade, notes: dict[tuple, str | None]) -> Attempt:
    problem = catalogue.problem(folder.problem)
    fields: dict[str, Any] = {
        "model": folder.model,
        "problem": problem.number,
        "problem_name": problem.name,
        "family": problem.family,
        "dsl": folder.dsl,
        "replicate": folder.replicate,
        "arm": Arm.CONDITIONED if folder.source_dsl else Arm.SOLO,
        "problem_sha256": problem.sha256,
        "source_dsl": folder.source_dsl,
        "generation": 1 if folder.source_dsl else 0,
        "versions": dsls.plugin(folder.dsl).versions(),
    }
    if folder.source_dsl:
        given = notes.get((folder.model, folder.problem, folder.replicate, folder.source_dsl))
        if given is None:
            return Attempt(
                **fields, state=State.SKIPPED, reason=f"the solo attempt in {folder.source_dsl} left no note"
            )
        fields["source_note_sha256"] = study.put_text("notes", given)
    submissions = []
    for index, path in folder.submissions():
        verdict = verdicts.of(folder, path, grade)
        submissions.append(
            Submission(index=index, kernel_sha256=study.put_text("kernels", path.read_text("utf-8")), verdict=verdict)
        )
    note, final = _note(folder), folder.path / "final.py"
    fields |= {"submissions": tuple(submissions), "note_sha256": study.put_text("notes", note) if note else None}
    if not final.exists():
        return Attempt(**fields, state=State.ERROR, reason="no final.py: the attempt ended without a kernel on disk")
    text = final.read_text("utf-8")
    verdict = verdicts.of(folder, final, grade, latest=True)
    repeats = verdicts.repeats((folder.problem, folder.dsl, digests.of_text(text)))
    return Attempt(
        **fields,
        kernel_sha256=study.put_text("kernels", text),
        verdict=verdict,
        device=verdict.device,
        at=verdict.at,
        **({"repeat_kernel_ms": repeats} if len(repeats) > 1 else {}),
    )
