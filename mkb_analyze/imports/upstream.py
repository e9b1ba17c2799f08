"""The published harness's store (`results/<model>/`) as a study; half-missing trials keep their reason."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from annotators.progress import tracked
from mkb_analyze.imports.notes import Imported
from runner import catalogue, plain_json
from runner.errors import UserError
from runner.records import Arm, Attempt, Stage, State, Submission, Usage, Verdict
from runner.study import Study

_TRIAL = re.compile(r"(?:[^/]*_)?p(\d{1,3})_r(\d{1,6})_(.+)")
_ARMS = {
    "solo_cutedsl": ("cutedsl", None),
    "solo_tirx": ("tirx", None),
    "cutedsl2tirx_skill": ("tirx", "cutedsl"),
    "tirx2cutedsl_skill": ("cutedsl", "tirx"),
}
_MAX_BYTES = 20_000_000


def import_upstream(store: str | Path, out: str | Path) -> Imported:
    """Read one model's store into the study `out`; a repeated call adds only trials that are new or changed.

    Raises:
        UserError: the folder is no store of the published harness.
    """
    root = Path(store)
    identity = _json(root / "store.json")
    if not isinstance(identity, dict) or not isinstance(identity.get("model"), str) or not identity["model"].strip():
        raise UserError(
            f"{root}: no store of the published harness (store.json with a model is missing); "
            f"give the folder results/<model>"
        )
    if not (root / "problems").is_dir():
        raise UserError(f"{root}/problems: missing; a store holds problems/<NN_name>/<trial>/")
    prefix = identity.get("prefix") if isinstance(identity.get("prefix"), str) else None
    study = Study.create(out, origin={"kind": "upstream"}, baseline="torch eager", dsls=list(catalogue.STUDY_PAIR))
    known = {attempt.key: attempt.line() for attempt in study.attempts()}
    left_out, n_new, n_present = [], 0, 0
    with study.writing():
        for folder, parts in tracked(_trials(root, prefix, left_out), "import upstream"):
            try:
                attempt = _attempt(study, folder, identity["model"], *parts)
            except (ValidationError, ValueError, OSError) as fault:
                left_out.append(f"{folder.parent.name}/{folder.name}: {_first_line(fault)}")
                continue
            if known.get(attempt.key) == attempt.line():
                n_present += 1
                continue
            study.append("attempts", attempt)
            n_new += 1
    return Imported(n_new, n_present, tuple(left_out))


def _trials(root: Path, prefix: str | None, left_out: list[str]) -> Iterator[tuple[Path, tuple]]:
    for problem in sorted(p for p in (root / "problems").iterdir() if p.is_dir() and not p.is_symlink()):
        for folder in sorted(p for p in problem.iterdir() if p.is_dir() and p.name != "skills"):
            match = _TRIAL.fullmatch(folder.name)
            if not match or match[3] not in _ARMS or (prefix and not folder.name.startswith(prefix + "_")):
                left_out.append(f"{problem.name}/{folder.name}: not a trial of this store")
                continue
            if folder.is_symlink():
                left_out.append(f"{problem.name}/{folder.name}: a symbolic link is not followed")
                continue
            name = re.sub(r"^\d+_", "", problem.name)
            yield folder, (int(match[1]), name, int(match[2]), *_ARMS[match[3]])


def _attempt(
    study: Study, folder: Path, model: str, number: int, name: str, replicate: int, dsl: str, source_dsl: str | None
) -> Attempt:
    record = _json(folder / "record.json")
    artifacts = folder / "artifacts" / "app"
    note = _text(artifacts / "SKILL.md")
    kernel = _text(artifacts / "kernel.py")
    fields: dict[str, Any] = {
        "model": model,
        "problem": number,
        "problem_name": name,
        "family": catalogue.family_of(number),
        "dsl": dsl,
        "arm": Arm.CONDITIONED if source_dsl else Arm.SOLO,
        "replicate": replicate,
        "source_dsl": source_dsl,
        "generation": 1 if source_dsl else 0,
    }
    if source_dsl:
        given = _text(folder.parent / "skills" / f"r{replicate}_{source_dsl}2{dsl}.md")
        fields["source_note_sha256"] = study.put_text("notes", given) if given is not None else None
    if not isinstance(record, dict):
        return Attempt(
            **fields, state=State.ERROR, reason=f"record.json {'unreadable' if record is ... else 'missing'}"
        )
    stamps = record.get("stamps") or {}
    if source_dsl and fields["source_note_sha256"] is None and _is_sha(stamps.get("skill_sha256")):
        fields["source_note_sha256"] = stamps["skill_sha256"]
    fields["task_fingerprint"] = str(stamps.get("task_fingerprint")) if stamps.get("task_fingerprint") else None
    if fields["task_fingerprint"] is None:
        del fields["task_fingerprint"]
    if record.get("skipped"):
        return Attempt(**fields, state=State.SKIPPED, reason=str(record["skipped"]))
    fields |= {
        "kernel_sha256": study.put_text("kernels", kernel) if kernel is not None else None,
        "note_sha256": study.put_text("notes", note) if note is not None and note.strip() else None,
        "timed_out": bool(record.get("timed_out")),
        "usage": _usage(record.get("usage")),
        "submissions": tuple(_submissions(folder / "submissions.jsonl")),
    }
    if record.get("error"):
        return Attempt(**fields, state=State.ERROR, reason=str(record["error"])[:4000])
    verdict, fault = _verdict(record.get("rewards"), _json(folder / "verdict.json"))
    if verdict is None:
        return Attempt(**fields, state=State.ERROR, reason=fault)
    return Attempt(**fields, verdict=verdict)


def _verdict(rewards: Any, detail: Any) -> tuple[Verdict | None, str | None]:
    """A verdict from rewards and (where it is there) verdict.json; None and the reason when it cannot be one."""
    if not isinstance(rewards, dict):
        return None, "rewards missing"
    detail = detail if isinstance(detail, dict) else {}
    tail = {"stderr_tail": str(detail["stderr"])[-4000:]} if detail.get("stderr") else {}
    if _number(detail.get("eval_sec")) is not None:
        tail["eval_s"] = _number(detail["eval_sec"])
    if (_number(rewards.get("passed")) or 0.0) >= 1.0:
        speedup = _number(rewards.get("speedup_vs_eager"))
        if speedup is None or speedup <= 0:
            return None, f"rewards say passed, but speedup_vs_eager is {rewards.get('speedup_vs_eager')!r}"
        medians = (detail.get("details") or {}).get("median_ms") if isinstance(detail.get("details"), dict) else None
        kernel_ms, eager_ms = (
            (_number(medians.get(k)) for k in ("kernel", "eager")) if isinstance(medians, dict) else (None, None)
        )
        # Times that do not give this speedup belong to another grading of the same trial: the speedup is the record's.
        if not (kernel_ms and eager_ms and abs(eager_ms / kernel_ms / speedup - 1) < 5e-3):
            kernel_ms = eager_ms = None
        return Verdict(
            passed=True, stage=Stage.DONE, speedup=speedup, kernel_ms=kernel_ms, reference_ms=eager_ms, **tail
        ), None
    stage = (
        Stage.LOAD
        if not (_number(rewards.get("imported")) or 0.0)
        else Stage.CORRECTNESS
        if not (_number(rewards.get("correct")) or 0.0)
        else Stage.TIMING
    )
    why = {Stage.LOAD: "the kernel was not loaded", Stage.CORRECTNESS: "wrong result", Stage.TIMING: "not timed"}[stage]
    report = str(detail.get("report") or "").strip()
    return Verdict(passed=False, stage=stage, reason=f"{why}: {report[:2000]}" if report else why, **tail), None


def _submissions(file: Path) -> Iterator[Submission]:
    try:
        lines = file.read_bytes()[:_MAX_BYTES].decode("utf-8", "replace").splitlines()
    except OSError:
        return
    for index, line in enumerate((l for l in lines if l.strip()), 1):
        try:
            value = plain_json.loads(line)
            verdict, fault = _verdict(value.get("rewards"), {"eval_sec": value.get("eval_sec")})
            yield Submission(
                index=index,
                at_s=_number(value.get("elapsed_sec")),
                counted=bool(value.get("counted", True)),
                verdict=verdict,
                remark=str(value["note"])[:4000] if value.get("note") else fault,
            )
        except (ValueError, AttributeError):
            yield Submission(index=index, counted=False, remark="unreadable line")


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None

    def count(name: str) -> int | None:
        number = _number(value.get(name))
        return int(number) if number is not None and number >= 0 else None

    return Usage(
        n_input_tokens=count("n_input_tokens"),
        n_cached_tokens=count("n_cache_tokens"),
        n_output_tokens=count("n_output_tokens"),
        cost_usd=_number(value.get("cost_usd")),
        agent_s=_number(value.get("agent_sec")),
    )


def _json(file: Path) -> Any:
    """The file's JSON; None when it is missing, `...` when it cannot be read."""
    try:
        if file.stat().st_size > _MAX_BYTES:
            return ...
        return plain_json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return ...


def _text(file: Path) -> str | None:
    try:
        if file.is_symlink() or file.stat().st_size > _MAX_BYTES:
            return None
        return file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, (int, float)) or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(value)


def _is_sha(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _first_line(fault: Exception) -> str:
    if isinstance(fault, ValidationError):
        return str(fault.errors(include_url=False)[0]["msg"])
    return str(fault).splitlines()[0][:300] if str(fault) else type(fault).__name__
