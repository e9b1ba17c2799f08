"""Known answers on regressions with clusters and on survival, mapped to the statistics."""

from typing import Any

import numpy as np

from mkb_analyze.stats.clustered import ClusterFit, cluster_linear, cluster_logistic, treatment
from mkb_analyze.stats.gee import gee_logistic
from mkb_analyze.stats.mixed import mixed_logistic
from mkb_analyze.stats.survival import SCALES, kaplan_meier, log_rank


def _design(data: dict) -> tuple[Any, Any, Any, Any]:
    x, names = treatment(data["category"])
    return data["y"], x, data["problem"], names


def _cluster(fit: ClusterFit) -> dict[str, Any]:
    return {
        "n": fit.n,
        "clusters": fit.n_clusters,
        "names": list(fit.names),
        "logLik": fit.log_likelihood,
        "coef": fit.coef,
        "satterthwaite_df_CR2": fit.df_cr2,
        "p_CR2": fit.p_cr2,
        **{f"se_{kind}": se for kind, se in fit.se.items()},
    }


def _logit(given: dict, expected: dict) -> Any:
    data = given["data"]
    fit = cluster_logistic(*_design(data))
    if "error" in expected:
        return fit.estimates[0].estimate, fit.estimates[0].reason
    out = _cluster(fit)
    if "coef_default_iterations" in expected:
        # the separated coefficient itself is reported as undefined; here R's stopping point is recovered
        separated = any(e.reason.startswith("separated") for e in fit.estimates)
        out["coef_default_iterations"] = fit.coef if separated else []
        out["converged"] = fit.converged
        for level in set(data["category"]):
            chosen = [y for y, c in zip(data["y"], data["category"], strict=True) if c == level]
            out[f"n_success_in_{level}"] = sum(chosen)
            out[f"n_failure_in_{level}"] = len(chosen) - sum(chosen)
    return out


def _linear(given: dict, expected: dict) -> Any:
    fit = cluster_linear(*_design(given["data"]))
    return (fit.estimates[0].estimate, fit.estimates[0].reason) if "error" in expected else _cluster(fit)


def _gee(given: dict, expected: dict) -> Any:
    design = _design(given["data"])
    plain, adjusted = gee_logistic(*design), gee_logistic(*design, moments="adjusted")
    alone = gee_logistic(*design, correlation="independence")
    if "error" in expected:
        return plain.estimates[0].estimate, plain.estimates[0].reason
    return {
        "names": list(plain.names),
        "geepack_coef": plain.coef,
        "geepack_robust_se": plain.robust_se,
        "geepack_wald_p": plain.p,
        "geepack_alpha": plain.alpha,
        "geepack_phi": plain.phi,
        "indep_coef": alone.coef,
        "indep_robust_se": alone.robust_se,
        "gee_coef": adjusted.coef,
        "gee_robust_se": adjusted.robust_se,
        "gee_naive_se": adjusted.naive_se,
        "gee_alpha": adjusted.alpha,
        "gee_phi": adjusted.phi,
    }


def _glmer(given: dict, expected: dict) -> Any:
    out = {}
    for key, n_points in (("laplace", 1), ("agq25", 25)):
        fit = mixed_logistic(*_design(given["data"]), n_points=n_points)
        out[key] = {
            "coef": fit.coef,
            "se": fit.se,
            "sd_problem": fit.sd_cluster,
            "logLik": fit.log_likelihood,
            "singular": fit.singular,
        }
        if "error" in expected:
            return fit.estimates[0].estimate, fit.estimates[0].reason
    return out


def _km(given: dict, expected: dict) -> Any:
    time = given["time"] if "time" in given else np.add(given["time_a"], given["time_b"])
    fit = kaplan_meier(time, given["event"], given.get("level", 0.95))
    out: dict[str, Any] = {
        "time": fit.time,
        "n_risk": fit.n_risk,
        "n_event": fit.n_event,
        "n_censor": fit.n_censor,
        "surv": fit.share,
        "greenwood_se": fit.se,
        "rmean": fit.restricted_mean.estimate,
        "rmean_horizon": fit.horizon,
    }
    for scale in SCALES:
        label = scale.replace("-", "")
        out[f"ci_{label}_lower"], out[f"ci_{label}_upper"] = fit.low[scale], fit.high[scale]
        median = fit.median[scale]
        out[f"median_{label}"] = median.estimate
        out[f"median_{label}_lower"], out[f"median_{label}_upper"] = median.low, median.high
    return out


def _log_rank(given: dict, expected: dict) -> Any:
    fit = log_rank(given["time"], given["event"], given["group"], given.get("strata"))
    if "error" in expected:
        return fit.test.p, fit.test.reason
    return {
        "n": fit.n,
        "observed": fit.observed,
        "expected": fit.expected,
        "chi2": fit.test.statistic,
        "df": fit.test.df,
        "p": fit.test.p,
        "peto_chi2": fit.peto.statistic,
        "peto_p": fit.peto.p,
    }


KINDS = {
    "logit_cluster": _logit,
    "lm_cluster": _linear,
    "gee": _gee,
    "glmer": _glmer,
    "km": _km,
    "logrank": _log_rank,
    "logrank_strata": _log_rank,
}
