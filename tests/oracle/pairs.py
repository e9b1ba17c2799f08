"""Known answers on paired values and the bootstrap, mapped to the statistics."""

from typing import Any

import numpy as np

from mkb_analyze.stats.icc import intraclass
from mkb_analyze.stats.paired import geometric_mean_ratio, sign_flip, sign_test
from mkb_analyze.stats.ranks import signed_rank
from mkb_analyze.stats.resample import acceleration, bca_levels, below_and_equal, bias, quantile


def _wilcoxon(given: dict, expected: dict) -> Any:
    fit = signed_rank(given["x"], given["y"])
    if "error" in expected:
        return fit.shift.p, fit.shift.reason
    # R's default: exact below 50 pairs without ties and zeros, else normal with the correction
    exact = fit.shift.n < 50 and not fit.ties and not fit.n_zero
    return {
        "n": fit.n_pairs,
        "n_zero": fit.n_zero,
        "ties": fit.ties,
        "V": fit.w_plus,
        "W_minus": fit.w_minus,
        "p_exact_conditional": fit.shift.p,
        "p_exact_less": fit.p_less,
        "p_exact_greater": fit.p_greater,
        "p_normal_nocorrection": fit.normal.p,
        "p_normal_correction": fit.corrected.p,
        "p_r_default": fit.shift.p if exact else fit.corrected.p,
        "p_pratt_exact": fit.pratt.p,
        "p_pratt_normal": fit.pratt_normal.p,
        "hodges_lehmann": fit.shift.estimate,
        "rank_biserial": fit.rank_biserial,
    }


def _sign(given: dict, expected: dict) -> Any:
    fit = sign_test(given["d"], given.get("level", 0.95))
    if "error" in expected:
        return fit.positive_share.p, fit.positive_share.reason
    return {
        "n_pos": fit.n_positive,
        "n_neg": fit.n_negative,
        "p_two_sided": fit.positive_share.p,
        "p_greater": fit.p_greater,
        "p_less": fit.p_less,
        "prop": fit.positive_share.estimate,
        "ci_lower": fit.positive_share.low,
        "ci_upper": fit.positive_share.high,
    }


def _gmr(given: dict, expected: dict) -> Any:
    fit = geometric_mean_ratio(given["x"], given["y"], given["level"])
    if "error" in expected:
        return fit.t, fit.ratio.reason
    return {
        "n": fit.ratio.n,
        "mean_log_ratio": fit.mean_log,
        "sd_log_ratio": fit.sd_log,
        "t": fit.t,
        "df": fit.df,
        "p": fit.ratio.p,
        "gmr": fit.ratio.estimate,
        "gmr_lower": fit.ratio.low,
        "gmr_upper": fit.ratio.high,
    }


def _icc(given: dict, expected: dict) -> Any:
    fit = intraclass(given["scores"], given.get("level", 0.95))
    if "error" in expected:
        return fit.icc1.estimate, fit.icc1.reason
    out = {"MSR": fit.ms_rows, "MSC": fit.ms_columns, "MSE": fit.ms_error, "MSW": fit.ms_within}
    for i, record in enumerate((fit.icc1, fit.icc2, fit.icc3)):
        out[f"ICC{i + 1}"] = {
            "icc": record.estimate,
            "F": fit.f[i],
            "df1": fit.df1,
            "df2": fit.df2[i],
            "p": record.p,
            "lower": record.low,
            "upper": record.high,
        }
    return out


def _sign_flip(given: dict, expected: dict) -> Any:
    fit = sign_flip(given["d"])
    if "error" in expected:
        return fit.test.p, fit.test.reason
    return {
        "n_assignments": fit.n_assignments,
        "t_obs": fit.test.statistic,
        "count_two_sided": fit.n_extreme,
        "p_two_sided": fit.test.p,
        "p_greater": fit.p_greater,
        "p_less": fit.p_less,
    }


def _bootstrap(given: dict, expected: dict) -> Any:
    log = np.log(np.asarray(given["x"], dtype=float) / np.asarray(given["y"], dtype=float))
    n, level = len(log), given["level"]
    index = np.asarray(given["index_zero_based"])
    # the geometric mean is the exponential of a mean: ties are judged on that scale
    means = np.stack([np.bincount(row, minlength=n) for row in index]) @ log / n
    replicates = np.exp(means)
    jackknife_log = (log.sum() - log) / (n - 1)
    jackknife = np.exp(jackknife_log)
    estimate = float(np.exp(log.mean()))
    n_below, n_equal = below_and_equal(replicates, estimate)
    out: dict[str, Any] = {
        "gmr": estimate,
        "replicates": replicates,
        "jackknife": jackknife,
        "a_gmr": acceleration(jackknife),
        "a_log": acceleration(jackknife_log),
        "n_less": n_below,
        "n_equal": n_equal,
    }
    tails = [(1 - level) / 2, (1 + level) / 2]
    for label, ties in (("strict", "strict"), ("half", "half")):
        z0 = bias(n_below, n_equal, len(index), ties)
        out[f"z0_{label}_{'less' if label == 'strict' else 'ties'}"] = z0
        levels = bca_levels(z0, out["a_gmr"], level)
        out[f"bca_levels_{label}"] = levels
        out[f"bca_type7_{label}"] = quantile(replicates, levels, "type7")
        if label == "strict":
            out["boot_ci_bca"] = quantile(replicates, levels, "normal")
    out["percentile_type7"], out["percentile_type6"] = (quantile(replicates, tails, r) for r in ("type7", "type6"))
    out["boot_ci_percent"] = quantile(replicates, tails, "normal")
    return out


def _jack_accel(given: dict, expected: dict) -> Any:
    x = np.asarray(given["x"], dtype=float)
    gap = x - x.mean()
    with np.errstate(all="ignore"):
        skew = float((gap**3).sum() / (6 * (gap**2).sum() ** 1.5))
    return {"a": acceleration((x.sum() - x) / (len(x) - 1)), "skew_over_6rootn": skew}


KINDS = {
    "wilcoxon": _wilcoxon,
    "sign": _sign,
    "gmr": _gmr,
    "icc": _icc,
    "perm_signflip": _sign_flip,
    "bootstrap": _bootstrap,
    "jack_accel": _jack_accel,
}
