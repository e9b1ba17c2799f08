"""Known answers on rates, tables, strata and multiplicity, mapped to the statistics."""

from typing import Any

from mkb_analyze.stats.contingency import chi_square, fisher, fisher_rxc, mcnemar
from mkb_analyze.stats.multiplicity import METHODS, adjust
from mkb_analyze.stats.rates import clopper_pearson, newcombe, wilson
from mkb_analyze.stats.stratified import cmh_general, mantel_haenszel
from tests.oracle.coarse_root import coarse_root


def _fisher(given: dict, expected: dict) -> Any:
    fit = fisher(given["table"], given.get("level", 0.95))
    loose = fisher(given["table"], given.get("level", 0.95), root=coarse_root).odds_ratio
    low_odds = loose.estimate
    if loose.reason:
        # fisher.test reports the edge of the only reachable table; ours is undefined there
        low_odds = 0.0
    return {
        "p_two_sided": fit.odds_ratio.p,
        "p_greater": fit.p_greater,
        "p_less": fit.p_less,
        "odds_ratio_cmle": fit.odds_ratio.estimate,
        "ci_lower": fit.odds_ratio.low,
        "ci_upper": fit.odds_ratio.high,
        "sample_odds_ratio": fit.sample_odds_ratio,
        "r_fisher_test_low_precision": {"odds_ratio": low_odds, "ci_lower": loose.low, "ci_upper": loose.high},
    }


def _fisher_rxc(given: dict, expected: dict) -> Any:
    test = fisher_rxc(given["table"])
    return (test.p, test.reason) if "error" in expected else {"p": test.p}


def _chisq(given: dict, expected: dict) -> Any:
    fit = chi_square(given["table"])
    if "error" in expected:
        return fit.pearson.p, fit.pearson.reason
    return {
        "chi2": fit.pearson.statistic,
        "df": fit.pearson.df,
        "p": fit.pearson.p,
        "chi2_yates": fit.yates.statistic,
        "p_yates": fit.yates.p,
        "expected": fit.expected,
        "residuals": fit.residuals,
        "stdres": fit.standardised,
        "cramers_v": fit.cramers_v,
    }


def _newcombe(given: dict, expected: dict) -> Any:
    fit = newcombe(given["x1"], given["n1"], given["x2"], given["n2"], given["level"])
    return (fit.estimate, fit.reason) if "error" in expected else {
        "diff": fit.estimate, "lower": fit.low, "upper": fit.high,
    }  # fmt: skip


def _binom(given: dict, expected: dict) -> Any:
    x, n, level = given["x"], given["n"], given["level"]
    plain, corrected, exact = wilson(x, n, level), wilson(x, n, level, corrected=True), clopper_pearson(x, n, level)
    return {
        "estimate": plain.estimate,
        "wilson_lower": plain.low,
        "wilson_upper": plain.high,
        "wilson_cc_lower": corrected.low,
        "wilson_cc_upper": corrected.high,
        "clopper_pearson_lower": exact.low,
        "clopper_pearson_upper": exact.high,
    }


def _cmh(given: dict, expected: dict) -> Any:
    fit = mantel_haenszel(given["strata"])
    if "error" in expected:
        return fit.odds_ratio.estimate, fit.odds_ratio.reason
    return {
        "common_or": fit.odds_ratio.estimate,
        "or_ci_lower": fit.odds_ratio.low,
        "or_ci_upper": fit.odds_ratio.high,
        "chi2_no_correction": fit.cmh.statistic,
        "p_no_correction": fit.cmh.p,
        "chi2_corrected": fit.cmh_corrected.statistic,
        "p_corrected": fit.cmh_corrected.p,
        "exact_p": fit.exact.p,
        "exact_common_or_cmle": fit.exact.estimate,
        "exact_ci_lower": fit.exact.low,
        "exact_ci_upper": fit.exact.high,
        "breslow_day": fit.breslow_day.statistic,
        "p": fit.breslow_day.p,
        "tarone": fit.tarone.statistic,
        "tarone_p": fit.tarone.p,
        "df": fit.breslow_day.df,
    }


def _cmh_general(given: dict, expected: dict) -> Any:
    test = cmh_general(given["strata"])
    if "error" in expected:
        return test.p, test.reason
    return {"chi2": test.statistic, "df": test.df, "p": test.p}


def _mcnemar(given: dict, expected: dict) -> Any:
    fit = mcnemar(given["table"])
    (_, b), (c, _) = given["table"]
    if "error" in expected:
        return fit.exact.p, fit.exact.reason
    return {
        "b": b,
        "c": c,
        "chi2": fit.chi_square.statistic,
        "p": fit.chi_square.p,
        "chi2_cc": fit.corrected.statistic,
        "p_cc": fit.corrected.p,
        "p_exact": fit.exact.p,
        "p_midp": fit.mid_p.p,
    }


def _p_adjust(given: dict, expected: dict) -> Any:
    return {method: adjust(given["p"], method) for method in METHODS}


KINDS = {
    "fisher": _fisher,
    "fisher_rxc": _fisher_rxc,
    "chisq": _chisq,
    "newcombe": _newcombe,
    "binom_ci": _binom,
    "cmh": _cmh,
    "cmh_general": _cmh_general,
    "mcnemar": _mcnemar,
    "p_adjust": _p_adjust,
}
