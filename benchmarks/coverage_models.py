"""Coverage and type I error of the methods for agreement, pairs, clustered models and survival."""

from collections.abc import Callable

import numpy as np
import worlds
from tally import Tally

from mkb_analyze.stats.agreement import cohen_kappa, fleiss_general, gwet_ac1
from mkb_analyze.stats.alpha import krippendorff_alpha
from mkb_analyze.stats.bootstrap import Ratio, cluster_bootstrap
from mkb_analyze.stats.chains import reproduction_number
from mkb_analyze.stats.clustered import cluster_linear, cluster_logistic
from mkb_analyze.stats.gee import gee_logistic
from mkb_analyze.stats.icc import intraclass
from mkb_analyze.stats.mixed import mixed_logistic
from mkb_analyze.stats.paired import geometric_mean_ratio, sign_flip
from mkb_analyze.stats.percent import percent_agreement
from mkb_analyze.stats.ranks import signed_rank
from mkb_analyze.stats.survival import kaplan_meier, log_rank


def agreement(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    world, pair = worlds.Raters(200), worlds.Raters(100, q=4, n_raters=2)
    many, many_pairs = world.draw(np.random.default_rng(11), 200_000), pair.draw(np.random.default_rng(12), 200_000)
    levels, few = list(range(world.q)), list(range(pair.q))
    truth = {
        "alpha": krippendorff_alpha(many, levels, resamples=0).estimate,
        "fleiss": fleiss_general(many, levels).value.estimate,
        "ac1": gwet_ac1(many, levels).value.estimate,
        "percent": percent_agreement(many, levels).over_items.estimate,
        "kappa": cohen_kappa(many_pairs[:, 0].tolist(), many_pairs[:, 1].tolist(), few).value.estimate,
        "ordinal": krippendorff_alpha(many_pairs, few, "ordinal", resamples=0).estimate,
    }
    where, where2 = "3 raters x 200 claims, 11 labels", "2 raters x 100 items, 4 labels"
    for _ in range(repeats):
        seen, two = world.draw(rng), pair.draw(rng)
        e = krippendorff_alpha(seen, levels, resamples=1000, rng=rng)
        resampled = "BCa bootstrap over items"
        tally.interval("Krippendorff alpha, nominal", resampled, where, e, truth["alpha"], True)
        e = krippendorff_alpha(two, few, "ordinal", resamples=1000, rng=rng)
        tally.interval("Krippendorff alpha, ordinal", resampled, where2, e, truth["ordinal"], True)
        e = fleiss_general(seen, levels).value
        tally.interval("Fleiss kappa", "Gwet's error, Fisher z", where, e, truth["fleiss"], True)
        tally.interval("Gwet AC1", "Gwet's error, Fisher z", where, gwet_ac1(seen, levels).value, truth["ac1"], True)
        e = percent_agreement(seen, levels).over_items
        tally.interval("raw agreement", "Wilson, effective items", where, e, truth["percent"], True)
        e = cohen_kappa(two[:, 0].tolist(), two[:, 1].tolist(), few).value
        tally.interval("Cohen kappa", "Fleiss-Cohen-Everitt, Fisher z", where2, e, truth["kappa"], True)


def pairs(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    where = "74 pairs, t3 logs, half neutral"
    truth = worlds.Lift().truth
    for i in range(repeats):
        logs = worlds.Lift.draw(rng, 74, 1)[:, 0]
        fit = geometric_mean_ratio(np.exp(logs), np.ones(74))
        tally.interval("geometric mean ratio", "t on logs", where, fit.ratio, np.exp(truth), True)
        null = rng.standard_t(3, 74) * 0.35 * (rng.random(74) < 0.5)
        rank = signed_rank(null)
        tally.p_value("no shift", "Wilcoxon signed rank, exact with ties", where, rank.shift.p, True)
        if i < repeats // 4:
            flip = sign_flip(null, resamples=2000, rng=rng)
            tally.p_value("no shift", "sign-flip permutation", where, flip.test.p, True)
        shifted = rng.standard_t(3, 37) * 0.35 + 0.1
        shift = signed_rank(shifted).shift
        tally.interval("Hodges-Lehmann shift", "inverted signed rank", "37 moved pairs", shift, 0.1, True)


def intraclass_correlation(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    for n, k in ((30, 3), (74, 2)):
        for _ in range(repeats):
            scores = rng.normal(0, 1, (n, 1)) + rng.normal(0, 1, (n, k))
            tally.interval("ICC(1)", "Shrout-Fleiss F", f"{n} attempts x {k} notes", intraclass(scores).icc1, 0.5, True)


def regressions(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    for n_clusters, size in ((74, 12), (12, 30)):
        where = f"{n_clusters} clusters of {size}, icc 0.1"
        cluster = np.repeat(np.arange(n_clusters), size)
        for _ in range(repeats):
            x = rng.random(len(cluster)) < worlds.beta_shares(0.3, 0.1, rng, (n_clusters,))[cluster]
            y = rng.random(len(cluster)) < worlds.beta_shares(0.3, worlds.ICC, rng, (n_clusters,))[cluster]
            design = np.column_stack([np.ones(len(x)), x])
            fit = cluster_logistic(y.astype(float), design, cluster, ("one", "x"))
            tally.interval("logistic coefficient", "CR2, Satterthwaite t", where, fit.estimates[1], 0.0, True)
            t = fit.coef[1] / fit.se["CR0"][1]
            tally.rejection("type I error", "logistic coefficient", "CR0, normal", where, bool(abs(t) > 1.96), False)
            gee = gee_logistic(y.astype(float), design, cluster, ("one", "x")).estimates[1]
            tally.interval("logistic coefficient", "GEE exchangeable, Wald", where, gee, 0.0, False)
            logs = rng.normal(0, 0.3, n_clusters)[cluster] + rng.normal(0, 0.5, len(cluster))
            fit = cluster_linear(logs, design, cluster, ("one", "x"))
            tally.interval("linear coefficient", "CR2, Satterthwaite t", where, fit.estimates[1], 0.0, True)


def mixed(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    cluster = np.repeat(np.arange(74), 6)
    for _ in range(repeats):
        x = rng.random(len(cluster)) < 0.4
        eta = -0.8 + 0.5 * x + rng.normal(0, 0.7, 74)[cluster]
        y = rng.random(len(cluster)) < 1 / (1 + np.exp(-eta))
        fit = mixed_logistic(y.astype(float), np.column_stack([np.ones(len(x)), x]), cluster, ("one", "x"), n_points=9)
        e = fit.estimates[1]
        tally.interval("mixed logistic coefficient", "quadrature, Wald", "74 problems of 6, sd 0.7", e, 0.5, True)


def survival(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    for n in (40, 120):
        for _ in range(repeats):
            curve = kaplan_meier(*worlds.claim_lives(rng, n))
            for scale, used in (("log-log", True), ("log", False), ("plain", False)):
                e = curve.at(2, scale)
                tally.interval("claims alive at generation 2", f"Greenwood, {scale}", f"{n} claims", e, 0.65**2, used)
            first, second = worlds.claim_lives(rng, n // 2), worlds.claim_lives(rng, n // 2)
            test = log_rank(
                np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]]),
                np.repeat(["a", "b"], n // 2),
            )  # fmt: skip
            tally.p_value("claims die alike", "log-rank", f"{n // 2} and {n // 2} claims", test.test.p, True)


def reproduction(tally: Tally, rng: np.random.Generator, repeats: int) -> None:
    for n in (20, 74):
        for _ in range(repeats):
            carriers = 1 + rng.poisson(2, n)
            own = rng.gamma(4, 0.8 / 4, n)
            new = rng.poisson(own * carriers)
            where = f"{n} chains, true 0.8"
            (e,) = reproduction_number(carriers, new, np.arange(n))
            tally.interval("reproduction number", "jackknife over chains, t on the log", where, e, 0.8, True)
            (e,) = cluster_bootstrap([Ratio("R", new, carriers, n=int(carriers.sum()))], 1000, rng)
            tally.interval("reproduction number", "cluster bootstrap, BCa", where, e, 0.8, False)


SCENARIOS: tuple[tuple[str, Callable[[Tally, np.random.Generator, int], None], float], ...] = (
    ("agreement", agreement, 1.0),
    ("pairs", pairs, 1.0),
    ("intraclass correlation", intraclass_correlation, 1.0),
    ("regressions", regressions, 0.5),
    ("mixed", mixed, 0.1),
    ("survival", survival, 1.0),
    ("reproduction", reproduction, 1.0),
)
