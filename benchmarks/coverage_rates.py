"""Coverage and type I error of the methods for rates, tables, pools and corrections."""

from collections.abc import Callable, Iterator

import numpy as np
import worlds
from scipy import stats
from tally import Tally

from mkb_analyze.stats.bootstrap import Ratio, cluster_bootstrap
from mkb_analyze.stats.contingency import cochran_armitage, fisher, mcnemar
from mkb_analyze.stats.difference import cluster_difference_p
from mkb_analyze.stats.misclassification import corrected_difference, corrected_shares
from mkb_analyze.stats.multiplicity import adjust
from mkb_analyze.stats.rates import clopper_pearson, newcombe, wilson
from mkb_analyze.stats.stratified import mantel_haenszel

RATES = (0.10, 0.162, 0.30, 0.446)


def exact_rates(tally: Tally) -> None:
    """Binomial intervals by enumeration of every count: no simulation."""
    for n in (74, 148):
        for method, used in ((wilson, True), (clopper_pearson, False)):
            limits = [method(x, n) for x in range(n + 1)]
            low, high = np.array([e.low for e in limits]), np.array([e.high for e in limits])
            for p in RATES:
                inside = stats.binom.pmf(np.arange(n + 1), n, p)[(low <= p) & (p <= high)].sum()
                tally.exact("one rate", limits[0].method, f"n={n}, p={p}", float(inside), used)


def exact_newcombe(tally: Tally) -> None:
    for n1, n2, p1, p2 in ((13, 23, 0.35, 0.35), (40, 70, 0.45, 0.30), (133, 277, 0.35, 0.25)):
        weight = np.outer(stats.binom.pmf(np.arange(n1 + 1), n1, p1), stats.binom.pmf(np.arange(n2 + 1), n2, p2))
        inside = 0.0
        for i, j in zip(*np.nonzero(weight > 1e-9), strict=True):
            e = newcombe(int(i), n1, int(j), n2)
            inside += weight[i, j] * (e.low <= p1 - p2 <= e.high)
        tally.exact("difference of two rates", "Newcombe", f"n={n1}, {n2}; p={p1}, {p2}", inside / weight.sum(), True)


def pooled_rates(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    lift = worlds.Lift()
    for _ in range(repeats):
        columns = {p: worlds.pooled_yes(p, rng) for p in (0.15, 0.31)}
        logs = worlds.Lift.draw(rng)
        full = np.full(worlds.N_PROBLEMS, float(worlds.N_GROUPS))
        ratios = [Ratio(str(p), yes, full, n=888) for p, yes in columns.items()]
        ratios.append(Ratio("lift", logs.sum(1), full, transform="exp-1", n=888))
        for kind, used in (("bca", True), ("percentile", False), ("expanded", False)):
            found = cluster_bootstrap(ratios, 2000, rng, kind=kind)
            for (p, _), e in zip(columns.items(), found, strict=False):
                tally.interval("pooled rate", f"cluster bootstrap, {kind}", f"888 in 74 problems, p={p}", e, p, used)
            tally.interval(
                "pooled paired lift", f"cluster bootstrap, {kind}", "888 in 74 problems, t3 logs", found[2],
                np.expm1(lift.truth), used,
            )  # fmt: skip
        for p, yes in columns.items():
            naive = wilson(int(yes.sum()), 888)
            tally.interval("pooled rate", "Wilson, clusters ignored", f"888 in 74 problems, p={p}", naive, p, False)


def category_tables(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    where = "888 in 74 problems, icc 0.1, 31% and 18% helped and harmed"
    for _ in range(repeats):
        harmed, helped, marks = worlds.categories(rng, 0.40, 0.25)
        parts = [(marks & harmed).sum(1), harmed.sum(1), (marks & helped).sum(1), helped.sum(1)]
        ratios = [Ratio("difference", *parts), Ratio("share", *parts[:2])]
        for kind, used in (("bca", True), ("percentile", False)):
            gap, share = cluster_bootstrap(ratios, 2000, rng, kind=kind)
            tally.interval("pooled category difference", f"cluster bootstrap, {kind}", where, gap, 0.15, used)
            tally.interval("share among the harmed", f"cluster bootstrap, {kind}", where, share, 0.40, used)
        a, b, c, d = (int(v.sum()) for v in parts)
        naive = newcombe(a, b, c, d)
        tally.interval("pooled category difference", "Newcombe, clusters ignored", where, naive, 0.15, False)
        harmed, helped, marks = worlds.categories(rng, 0.3, 0.3)
        parts = [(marks & harmed).sum(1), harmed.sum(1), (marks & helped).sum(1), helped.sum(1)]
        p = cluster_difference_p(*(v[None] for v in parts))[0]
        tally.p_value("pooled category association", "cluster-robust score test", where, p, True)
        strata = _strata(harmed, helped, marks)
        tally.p_value("pooled category association", "CMH over 12 groups", where, mantel_haenszel(strata).cmh.p, False)


def _strata(harmed: np.ndarray, helped: np.ndarray, marks: np.ndarray) -> list[list[list[int]]]:
    out = []
    for g in range(harmed.shape[1]):
        h, u, m = harmed[:, g], helped[:, g], marks[:, g]
        out.append([[int((m & h).sum()), int((~m & h).sum())], [int((m & u).sum()), int((~m & u).sum())]])
    return out


def independent_tables(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    where = "12 independent groups of 74"
    for _ in range(repeats):
        harmed, helped, marks = worlds.categories(rng, 0.3, 0.3, icc=0.0)
        fit = mantel_haenszel(_strata(harmed, helped, marks))
        tally.p_value("association over strata", "CMH", where, fit.cmh.p, True)
        tally.interval("common odds ratio", "Mantel-Haenszel, RBG interval", where, fit.odds_ratio, 1.0, True)
        tally.p_value("equal odds ratios", "Breslow-Day-Tarone", where, fit.tarone.p, True)


def small_tables(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    where = "one model: 133 harmed, 277 helped, p=0.3 and 0.3"
    for _ in range(repeats):
        a, b = rng.binomial(133, 0.3), rng.binomial(277, 0.3)
        fit = fisher([[a, 133 - a], [b, 277 - b]])
        tally.p_value("association in one table", "Fisher exact", where, fit.odds_ratio.p, False)
        tally.p_value("association in one table", "Fisher mid-p", where, fit.mid.p, True)
        tally.interval("odds ratio of one table", "exact conditional", where, fit.odds_ratio, 1.0, False)
        tally.interval("odds ratio of one table", "mid-p conditional", where, fit.mid, 1.0, True)
        x = rng.binomial([60, 100, 62], 0.3)
        p = cochran_armitage(x, [60, 100, 62]).p
        tally.p_value("trend over standing", "Cochran-Armitage", "60, 100, 62 transfers, p=0.3", p, True)
        pairs = rng.multinomial(74, [0.15, 0.2, 0.2, 0.45]).reshape(2, 2)
        test = mcnemar(pairs)
        where2 = "74 pairs, 20% and 20% discordant"
        tally.p_value("reverse direction", "McNemar mid-p", where2, test.mid_p.p, True)
        tally.p_value("reverse direction", "McNemar exact", where2, test.exact.p, False)
        tally.interval("paired difference", "Newcombe paired", where2, test.difference, 0.0, True)


def false_discoveries(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    """Global null: 11 categories x 3 models of one table; FDR is the share of studies with any discovery."""
    for _ in range(repeats):
        p_robust = []
        for _model in range(3):
            for _category in range(11):
                harmed, helped, marks = worlds.categories(rng, 0.3, 0.3, n_groups=4)
                parts = [(marks & harmed).sum(1), harmed.sum(1), (marks & helped).sum(1), helped.sum(1)]
                p_robust.append(cluster_difference_p(*(v[None] for v in parts))[0])
        where = "33 tests: 11 categories x 3 models of 4 directions, icc 0.1"
        found = bool(np.min(adjust(p_robust)) <= 0.05)
        tally.rejection("FDR", "global null", "BH on cluster-robust p", where, found, True)


def corrections(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    share, se, sp = 0.25, 0.85, 0.92
    true3 = np.array([0.5, 0.3, 0.2])
    rates3 = np.array([[0.85, 0.1, 0.05], [0.1, 0.8, 0.1], [0.05, 0.1, 0.85]])
    for _ in range(repeats):
        positive = rng.binomial(150, share)
        hit, right = rng.binomial(positive, se), rng.binomial(150 - positive, sp)
        confusion = [[right, 150 - positive - right], [positive - hit, hit]]
        gold = worlds.beta_shares(share, worlds.ICC, rng, (worlds.N_PROBLEMS,))
        yes = rng.binomial(worlds.N_GROUPS, gold * se + (1 - gold) * (1 - sp))
        counts = np.column_stack([worlds.N_GROUPS - yes, yes])
        both = corrected_shares(confusion, counts, ("no", "yes"), 2000, rng)[1]
        where = "888 in 74 problems, 150 gold, Se 0.85, Sp 0.92, true share 0.25"
        tally.interval("prevalence", "Rogan-Gladen, joint bootstrap", where, both.corrected, share, True)
        tally.interval("prevalence", "as labelled, not corrected", where, both.uncorrected, share, False)
        gold3 = np.stack([rng.multinomial(n, r) for n, r in zip((75, 45, 30), rates3, strict=True)])
        seen3 = rng.multinomial(888, true3 @ rates3)
        first = corrected_shares(gold3, seen3, ("a", "b", "c"), 2000, rng)[0].corrected
        where3 = "888 labels of 3, 150 gold"
        tally.interval("prevalence of 3 labels", "matrix inversion, joint bootstrap", where3, first, 0.5, True)
        q1, q2 = (p * se + (1 - p) * (1 - sp) for p in (0.4, 0.25))
        x1, x2 = rng.binomial(133, q1), rng.binomial(277, q2)
        gap = corrected_difference(confusion, [133 - x1, x1], [277 - x2, x2], "d", 2000, rng).corrected
        where2 = "133 and 277, 150 gold"
        tally.interval("corrected difference", "Rogan-Gladen, joint bootstrap", where2, gap, 0.15, True)


SCENARIOS: tuple[tuple[str, Callable[[Tally, np.random.Generator, int], None], float], ...] = (
    ("pooled rates and lift", pooled_rates, 1.0),
    ("category tables", category_tables, 1.0),
    ("independent tables", independent_tables, 1.0),
    ("small tables", small_tables, 1.0),
    ("false discoveries", false_discoveries, 0.5),
    ("corrections", corrections, 1.0),
)


def exact() -> Iterator[Callable[[Tally], None]]:
    yield exact_rates
    yield exact_newcombe
