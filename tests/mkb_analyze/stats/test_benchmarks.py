"""The coverage study runs, and the committed one shows no reported method outside its range."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_coverage_runs(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "coverage.py"), "--repeats", "40", "--only", "survival"]
    subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, timeout=120)
    rows = json.loads((tmp_path / "coverage.json").read_text())["rows"]
    kept = [r for r in rows if r["what"] == "claims alive at generation 2" and r["used"]]
    assert len(kept) == 2 and all(0.8 < r["value"] <= 1 for r in kept)
    exact = [r for r in rows if r["method"] == "Wilson" and r["n_simulated"] == 0]
    assert all(0.93 <= r["value"] <= 0.97 for r in exact)


@pytest.mark.parametrize("kind", ["coverage", "type I error", "FDR"])
def test_every_reported_method_is_within_its_range(kind):
    rows = json.loads((BENCHMARKS / "results" / "coverage.json").read_text())["rows"]
    used = [r for r in rows if r["used"] and r["kind"] == kind]
    assert used and [r for r in used if not r["within_error"]] == []
