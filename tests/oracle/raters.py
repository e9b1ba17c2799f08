"""Known answers on agreement, mapped to the statistics."""

import math
from typing import Any

from mkb_analyze.stats.agreement import cohen_kappa, cohen_multilabel, fleiss_general, fleiss_kappa, gwet_ac1
from mkb_analyze.stats.alpha import krippendorff_alpha
from mkb_analyze.stats.percent import percent_agreement


def _cohen(given: dict, expected: dict) -> Any:
    out: dict[str, Any] = {}
    for weights in ("unweighted", "linear", "quadratic"):
        fit = cohen_kappa(given["a"], given["b"], given["levels"], weights)
        out[weights], out[f"{weights}_ase"] = fit.value.estimate, fit.se
        out["n"], out["percent_agreement"] = fit.value.n, fit.observed
    return (out["unweighted"], fit.value.reason) if "error" in expected else out


def _multilabel(given: dict, expected: dict) -> Any:
    fit = cohen_multilabel(given["rater1"], given["rater2"])
    return {
        "kappa_per_column": [c.value.estimate for c in fit.per_label],
        "percent_agreement_per_column": [c.observed for c in fit.per_label],
        "macro_mean_defined_only": fit.macro_kappa,
        "n_undefined": fit.n_undefined,
        "exact_set_match": fit.exact_set_match,
        "pooled_micro_kappa": fit.pooled_kappa.value.estimate,
    }


def _fleiss(given: dict, expected: dict) -> Any:
    fit = fleiss_kappa(given["counts"])
    if "error" in expected:
        return fit.kappa.value.estimate, fit.kappa.value.reason
    return {
        "n": fit.kappa.value.n,
        "m": fit.n_raters,
        "po": fit.kappa.observed,
        "pe": fit.kappa.chance,
        "kappa": fit.kappa.value.estimate,
        "se_h0": fit.se_null,
        "z": fit.z,
        "per_category": fit.per_category,
    }


def _agreement(given: dict, expected: dict) -> Any:
    ratings, levels = given["ratings"], given["levels"]
    percent = percent_agreement(ratings, levels)
    ac1, fleiss = gwet_ac1(ratings, levels), fleiss_general(ratings, levels)
    out: dict[str, Any] = {
        "percent": {
            "pairwise_mean_over_items": percent.over_items.estimate,
            "pairwise_pooled_over_pairs": percent.over_pairs,
            "all_raters_identical": percent.all_identical,
            "items_with_2plus": percent.n_items,
        },
        "gwet_ac1": ac1.value.estimate,
        "gwet_ac1_se": ac1.se,
        "gwet_pe": ac1.chance,
        "fleiss_gwet_missing": fleiss.value.estimate,
        "fleiss_gwet_se": fleiss.se,
    }
    for measurement in ("nominal", "ordinal", "interval"):
        alpha = krippendorff_alpha(ratings, levels, measurement, resamples=0)
        out[f"kripp_{measurement}"] = alpha.estimate
        out["n_pairable"] = alpha.n_by_cell.get("pairable ratings", math.nan)
    return out


KINDS = {"cohen_kappa": _cohen, "cohen_multilabel": _multilabel, "fleiss_kappa": _fleiss, "agreement": _agreement}
