"""Writes a store as the published harness lays it out, and counts its figures anew by hand from what was written."""

import json
import random
import statistics
from pathlib import Path

THRESHOLDS = (0.0, 0.5, 1.0, 2.0, 4.0)
ARMS = ("solo_cutedsl", "solo_tirx", "cutedsl2tirx_skill", "tirx2cutedsl_skill")
PROBLEMS = {3: "gqa_decode", 20: "mla_write", 28: "residual_norm", 44: "experts", 57: "qkvo", 66: "wkv"}
CATEGORY = {3: "attention", 20: "kv_cache", 28: "mlp_norm", 44: "moe", 57: "quantization", 66: "linear_attention"}


def write(root: Path, seed: int, n_replicates: int = 3) -> dict:
    """A store with passes, failures, skips, errors and missing trials; returns {(problem, replicate, arm): record}."""
    rng = random.Random(seed)
    root.mkdir(parents=True)
    (root / "store.json").write_text(
        json.dumps({"model": "lab/some-model", "prefix": "abc123", "created_at": "2026-10-01T00:00:00+00:00"})
    )
    written: dict = {}
    for number, name in PROBLEMS.items():
        folder = root / "problems" / f"{number:02d}_{name}"
        for replicate in range(1, n_replicates + 1):
            has_note = {dsl: rng.random() < 0.85 for dsl in ("cutedsl", "tirx")}
            for arm in ARMS:
                if rng.random() < 0.06:
                    continue
                written[number, replicate, arm] = _trial(folder, number, replicate, arm, has_note, rng)
    return written


def _trial(folder: Path, number: int, replicate: int, arm: str, has_note: dict, rng: random.Random) -> dict:
    trial = folder / f"abc123_p{number:02d}_r{replicate}_{arm}"
    trial.mkdir(parents=True)
    record: dict = {
        "rewards": {},
        "timed_out": False,
        "error": None,
        "skipped": None,
        "usage": None,
        "stamps": {"task_fingerprint": "f" * 8, "skill_sha256": None},
    }
    source = arm.split("2")[0] if "2" in arm else None
    if source and not has_note[source]:
        record["skipped"] = "source wrote no SKILL.md"
    elif rng.random() < 0.08:
        record["error"] = "SandboxError: gone"
    elif rng.random() < 0.3:
        record["rewards"] = {"imported": 1.0, "correct": 0.0, "speedup_vs_eager": 0.0, "passed": 0.0}
    else:
        speedup = round(rng.uniform(0.2, 6.0), 4)
        record["rewards"] = {"imported": 1.0, "correct": 1.0, "speedup_vs_eager": speedup, "passed": 1.0}
        (trial / "verdict.json").write_text(
            json.dumps(
                {
                    "rewards": record["rewards"],
                    "eval_sec": 31.5,
                    "stderr": "",
                    "report": "ok",
                    "details": {"median_ms": {"kernel": 1 / speedup, "eager": 1.0}},
                }
            )
        )
    (trial / "record.json").write_text(json.dumps(record))
    app = trial / "artifacts" / "app"
    app.mkdir(parents=True)
    (app / "kernel.py").write_text(f"# {arm} {number} {replicate}\n")
    if arm.startswith("solo_") and has_note[arm.removeprefix("solo_")]:
        (app / "SKILL.md").write_text(
            f"# note of {arm} {number} {replicate}\n\n- Fusing both loops took 1.9 ms down to 1.2 ms.\n"
            "- Tensor cores cannot help here.\n- Check rows of zeros first.\n"
        )
    return record


def resolved(written: dict) -> list[tuple]:
    """(problem, direction, source, base, skill) of every resolved cell and replicate."""
    rows = []
    for number, replicate in sorted({k[:2] for k in written}):
        for source, target in (("cutedsl", "tirx"), ("tirx", "cutedsl")):
            parts = [
                written.get((number, replicate, a))
                for a in (f"solo_{source}", f"solo_{target}", f"{source}2{target}_skill")
            ]
            if all(p is not None and p["error"] is None for p in parts):
                rows.append((number, f"{source}2{target}", *parts))
    return sorted(rows, key=lambda r: (f"{r[0]:02d}_{PROBLEMS[r[0]]}", r[1]))


def ladder(records: list[dict]) -> dict[str, float]:
    """R@t and S straight from the rewards."""

    def attains(record: dict, t: float) -> bool:
        return record["rewards"].get("passed", 0.0) >= 1.0 and record["rewards"].get("speedup_vs_eager", 0.0) >= t

    rates = {f"R@{t:g}": statistics.mean(attains(r, t) for r in records) for t in THRESHOLDS}
    return {**rates, "S": 100 * statistics.mean(rates.values())}


def contrast(rows: list[tuple]) -> dict:
    if not rows:
        return {"base": None, "skill": None, "lift": None}
    base, skill = ladder([r[3] for r in rows]), ladder([r[3] if r[4]["skipped"] else r[4] for r in rows])
    return {"base": base, "skill": skill, "lift": {k: skill[k] - base[k] for k in base}}
