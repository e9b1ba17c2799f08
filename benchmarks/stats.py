"""Speed of the statistics against libraries that do the same, and on a GPU: `python benchmarks/stats.py [--gpu]`."""

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mkb_analyze.stats.bootstrap import cluster_bootstrap  # noqa: E402
from mkb_analyze.stats.groups import POOLED, transfer_ratios  # noqa: E402

RESULTS = Path(__file__).parent / "results"
N_GROUPS, N_PROBLEMS, N_CATEGORIES, RESAMPLES = 12, 74, 11, 10_000
SEED = 20240611


def study(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """888 synthetic transfers: problem effects, three outcomes, 11 overlapping categories."""
    problem = np.tile(np.arange(N_PROBLEMS), N_GROUPS)
    group = np.repeat(np.arange(N_GROUPS), N_PROBLEMS)
    latent = rng.normal(0, 0.5, N_PROBLEMS)[problem] + rng.normal(0, 1, len(problem))
    helped, harmed = latent > 0.55, latent < -1.1
    share = 0.3 + 0.1 * harmed[:, None] * np.linspace(-1, 1, N_CATEGORIES)
    return {
        "problem": problem,
        "group": group,
        "helped": helped,
        "harmed": harmed,
        "log_ratio": np.where(helped | harmed, latent * 0.3, 0.0),
        "categories": rng.random((len(problem), N_CATEGORIES)) < share,
    }


def best_of(repeats: int, call: Any) -> tuple[float, Any]:
    """Least wall seconds of several calls, and the last answer."""
    least, answer = math.inf, None
    for _ in range(repeats):
        start = time.perf_counter()
        answer = call()
        least = min(least, time.perf_counter() - start)
    return least, answer


def all_tables(data: dict[str, np.ndarray], take: np.ndarray) -> np.ndarray:
    """The same 182 numbers from the transfers in `take` (row indices, repeats allowed), for scipy.stats.bootstrap."""
    group, helped, harmed = data["group"][take], data["helped"][take], data["harmed"][take]
    log_ratio, categories = data["log_ratio"][take], data["categories"][take]
    out = []
    with np.errstate(all="ignore"):
        for g in [*range(N_GROUPS), None]:
            here = slice(None) if g is None else group == g
            up, down, marks = helped[here], harmed[here], categories[here]
            out += [up.mean(), down.mean(), 100 * math.expm1(log_ratio[here].mean())]
            difference = marks[down].sum(0) / down.sum() - marks[up].sum(0) / up.sum()
            out += (100 * difference).tolist()
    return np.array(out)


def bench_bootstrap(seed: int) -> dict[str, Any]:
    from scipy import stats

    data = study(np.random.default_rng(seed))
    rows_of = [np.flatnonzero(data["problem"] == p) for p in range(N_PROBLEMS)]

    def ours() -> Any:
        ratios = transfer_ratios(
            data["problem"], data["group"], data["helped"], data["harmed"], data["log_ratio"], data["categories"]
        )
        return cluster_bootstrap(ratios, RESAMPLES, seed)

    ours_s, records = best_of(5, ours)

    def statistic(problems: np.ndarray) -> np.ndarray:
        return all_tables(data, np.concatenate([rows_of[p] for p in problems.astype(int)]))

    def scipy_bootstrap(resamples: int) -> Any:
        return stats.bootstrap(
            (np.arange(N_PROBLEMS),), statistic, n_resamples=resamples, vectorized=False, method="BCa",
            rng=np.random.default_rng(seed),
        )  # fmt: skip

    few, many = 100, 1100
    few_s, _ = best_of(2, lambda: scipy_bootstrap(few))
    many_s, answer = best_of(2, lambda: scipy_bootstrap(many))
    per_resample = (many_s - few_s) / (many - few)
    scipy_s = few_s + per_resample * (RESAMPLES - few)
    pooled = [i for i, r in enumerate(records) if r.name.endswith(POOLED)][:3]
    width = answer.confidence_interval.high - answer.confidence_interval.low
    widths = [abs(width[i] / (records[i].high - records[i].low) - 1) for i in pooled]
    return {
        "what": f"cluster bootstrap (BCa) of {len(records)} numbers: {N_GROUPS} groups and pooled, "
        f"{len(data['problem'])} transfers, {N_CATEGORIES} categories, {RESAMPLES} resamples, one core",
        "ours_s": ours_s,
        "other": "scipy.stats.bootstrap, BCa, one vector-valued statistic over resampled problems",
        "other_s": scipy_s,
        "other_how": f"timed at {few} and {many} resamples, extrapolated linearly to {RESAMPLES}",
        "ratio": scipy_s / ours_s,
        "wanted": "under 3 s and at least 30x",
        "check": f"pooled interval widths within {100 * max(widths):.0f}% of scipy's at {many} resamples",
        "met": bool(ours_s < 3 and scipy_s / ours_s >= 30),
    }


def bench_alpha(seed: int, resamples: int = 1000, n_claims: int = 100_000) -> dict[str, Any]:
    import krippendorff

    from mkb_analyze.stats.alpha import krippendorff_alpha

    rng = np.random.default_rng(seed)
    gold = rng.integers(1, N_CATEGORIES + 1, n_claims)
    guess = rng.integers(1, N_CATEGORIES + 1, (n_claims, 3))
    ratings = np.where(rng.random((n_claims, 3)) < 0.75, gold[:, None], guess)
    ratings = np.where(rng.random(ratings.shape) < 0.05, np.nan, ratings)
    levels = list(range(1, N_CATEGORIES + 1))
    ours_s, record = best_of(3, lambda: krippendorff_alpha(ratings, levels, resamples=resamples, rng=seed))

    def one(take: np.ndarray) -> float:
        return krippendorff.alpha(ratings[take].T, level_of_measurement="nominal", value_domain=levels)

    loop = 10
    start = time.perf_counter()
    for _ in range(loop):
        one(rng.integers(0, n_claims, n_claims))
    other_s = (time.perf_counter() - start) / loop * (resamples + 1)
    return {
        "what": f"Krippendorff alpha with {resamples} resamples, 3 raters x {n_claims} claims, {N_CATEGORIES} labels",
        "ours_s": ours_s,
        "other": "the krippendorff package, called once a resample",
        "other_s": other_s,
        "other_how": f"{loop} calls timed, multiplied to {resamples + 1}",
        "ratio": other_s / ours_s,
        "wanted": "at least 20x",
        "check": f"alpha differs from the package's by {abs(record.estimate - one(np.arange(n_claims))):.1e}",
        "met": bool(other_s / ours_s >= 20),
    }


def bench_gpu(seed: int, resamples: int = 1_000_000) -> dict[str, Any]:
    import cupy

    data = study(np.random.default_rng(seed))
    fields = ("problem", "group", "helped", "harmed", "log_ratio", "categories")

    def run(xp: Any, n: int) -> Any:
        ratios = transfer_ratios(*(data[f] for f in fields), xp=xp)
        records = cluster_bootstrap(ratios, n, seed, block=100_000)
        if xp is cupy:
            cupy.cuda.Device().synchronize()
        return records

    run(cupy, 1000)
    first = time.perf_counter()
    run(cupy, resamples)
    first_s = time.perf_counter() - first
    gpu_s, on_gpu = best_of(5, lambda: run(cupy, resamples))
    cpu_n = 100_000
    cpu_s, on_cpu = best_of(1, lambda: run(np, cpu_n))
    worst = max(_apart(g, c, cpu_n) for g, c in zip(on_gpu, on_cpu, strict=True) if not math.isnan(g.low))
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return {
        "what": f"cluster bootstrap (BCa) of {len(on_gpu)} numbers, {resamples} resamples, CuPy on {name}",
        "ours_s": gpu_s,
        "first_s": first_s,
        "other": f"the same on NumPy, {cpu_n} resamples timed",
        "other_s": cpu_s * resamples / cpu_n,
        "other_how": f"timed at {cpu_n} resamples, multiplied",
        "ratio": cpu_s * resamples / cpu_n / gpu_s,
        "wanted": "under 2 s with the same intervals to Monte Carlo error",
        "check": f"limits differ from NumPy's at {cpu_n} resamples by at most {worst:.1f} Monte Carlo errors",
        "met": bool(gpu_s < 2 and worst < 6),
    }


def _apart(one: Any, other: Any, resamples: int) -> float:
    """Largest distance of the limits in Monte Carlo standard errors of a BCa limit, taken from a normal shape.

    Two errors add: that of the quantile, and that of the bias correction z0, a share of the same resamples, which
    moves the level twice as far (the limit stands at z0 + (z0 + z)).

    A rate of n cases moves in steps of 1/n: one step counts as one such error at least.
    """
    sd = max(other.high - other.low, 1e-300) / 3.92
    # standard error of a quantile: sqrt(a (1 - a)/B)/density, density of the normal at its 2.5% point
    quantile = math.sqrt(0.025 * 0.975 / resamples) / 0.0584
    # z0 is the normal score of a share near 1/2, where the normal density is 0.399
    bias = 2 * math.sqrt(0.25 / resamples) / 0.399
    error = sd * math.hypot(quantile, bias)
    step = 1 / one.n if " rate " in one.name else 0.0
    return max(abs(one.low - other.low), abs(one.high - other.high)) / max(error, step)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="time the cluster bootstrap on the GPU alone (CuPy)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the result (default benchmarks/results)")
    arguments = parser.parse_args()
    benches = [bench_gpu] if arguments.gpu else [bench_bootstrap, bench_alpha]
    rows = [bench(arguments.seed) for bench in benches]
    arguments.out.mkdir(parents=True, exist_ok=True)
    stem = "stats_gpu" if arguments.gpu else "stats"
    (arguments.out / f"{stem}.json").write_text(json.dumps({"seed": arguments.seed, "rows": rows}, indent=1) + "\n")
    lines = [
        f"# Speed of the statistics{' on a GPU' if arguments.gpu else ''} (seed {arguments.seed})",
        "",
        "| what | ours, s | other, s | ratio | wanted | met | the other is | how it was timed | check |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['what']} | {r['ours_s']:.3f} | {r['other_s']:.1f} | {r['ratio']:.0f} | {r['wanted']} | "
            f"{'yes' if r['met'] else 'NO'} | {r['other']} | {r['other_how']} | {r['check']} |"
        )
    (arguments.out / f"{stem}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0 if all(r["met"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
