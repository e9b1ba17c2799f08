"""Regressions with clusters against statsmodels and quadrature by hand."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import integrate, stats
from scipy.special import expit

from mkb_analyze.stats.clustered import cluster_linear, cluster_logistic, treatment
from mkb_analyze.stats.gee import gee_logistic
from mkb_analyze.stats.mixed import mixed_logistic


def world(seed: int = 1, n_clusters: int = 15, size: int = 6):
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(n_clusters), size)
    category = rng.choice(list("ABC"), len(cluster))
    x, names = treatment(category)
    eta = -0.3 + 0.8 * (category == "B") + rng.normal(0, 0.8, n_clusters)[cluster]
    y = (rng.random(len(cluster)) < expit(eta)).astype(float)
    return y, x, cluster, names


def test_clustered_logistic_is_statsmodels():
    y, x, cluster, names = world()
    theirs = sm.Logit(y, x).fit(disp=0, tol=1e-12)
    robust = sm.Logit(y, x).fit(disp=0, tol=1e-12, cov_type="cluster", cov_kwds={"groups": cluster})
    fit = cluster_logistic(y, x, cluster, names)
    assert np.allclose(fit.coef, theirs.params, atol=1e-8)
    assert np.allclose(fit.se["CR1S"], robust.bse, rtol=1e-7)


def test_clustered_linear_is_statsmodels():
    y, x, cluster, names = world(2)
    y = y + np.random.default_rng(3).normal(0, 1, len(y))
    robust = sm.OLS(y, x).fit(cov_type="cluster", cov_kwds={"groups": cluster})
    fit = cluster_linear(y, x, cluster, names)
    assert np.allclose(fit.se["CR1S"], robust.bse, rtol=1e-9)
    assert np.allclose(fit.se["model"], sm.OLS(y, x).fit().bse, rtol=1e-9)


@pytest.mark.parametrize("method", [cluster_logistic, gee_logistic, mixed_logistic])
def test_row_order_does_not_matter(method):
    y, x, cluster, names = world(4)
    mix = np.random.default_rng(5).permutation(len(y))
    one, other = method(y, x, cluster, names), method(y[mix], x[mix], cluster[mix], names)
    tolerance = 1e-3 if method is mixed_logistic else 1e-7
    assert np.allclose([e.low for e in one.estimates], [e.low for e in other.estimates], atol=tolerance)


@pytest.mark.parametrize("method", [cluster_logistic, gee_logistic, mixed_logistic])
def test_separation_is_reported(method):
    y, _, cluster, _ = world(6)
    x, names = treatment(["C" if i % 3 == 0 else "A" for i in range(len(y))])
    y = np.where(x[:, 1] == 1, 0.0, y)
    bad = method(y, x, cluster, names).estimates[1]
    assert math.isnan(bad.estimate) and "separated" in bad.reason


def test_one_cluster_is_no_sample():
    y, x, cluster, names = world(7)
    for method in (cluster_logistic, cluster_linear, gee_logistic, mixed_logistic):
        e = method(y, x, np.zeros(len(y)), names).estimates[0]
        assert math.isnan(e.estimate) and "cluster" in e.reason


def test_gee_is_statsmodels():
    y, x, cluster, names = world(8)
    theirs = sm.GEE(y, x, cluster, family=sm.families.Binomial(), cov_struct=sm.cov_struct.Independence()).fit()
    fit = gee_logistic(y, x, cluster, names, correlation="independence")
    assert np.allclose(fit.coef, theirs.params, atol=1e-6) and np.allclose(fit.robust_se, theirs.bse, rtol=1e-5)


def test_marginal_likelihood_is_the_integral():
    y, x, cluster, names = world(9, n_clusters=4, size=4)
    fit = mixed_logistic(y, x[:, :1], cluster, names[:1], n_points=25)
    total = 0.0
    for g in range(4):
        mine = y[cluster == g]

        def inside(u, mine=mine):
            p = expit(fit.coef[0] + fit.sd_cluster * u)
            return np.prod(np.where(mine > 0, p, 1 - p)) * stats.norm.pdf(u)

        total += math.log(integrate.quad(inside, -9, 9, epsabs=1e-12)[0])
    assert math.isclose(total, fit.log_likelihood, rel_tol=1e-6)


def test_no_spread_between_clusters_is_the_boundary():
    cluster = np.repeat(np.arange(20), 4)
    y = np.tile([0.0, 1.0, 0.0, 1.0], 20)
    fit = mixed_logistic(y, np.ones((80, 1)), cluster, ("one",))
    assert fit.singular and fit.sd_cluster == 0.0
    assert math.isclose(fit.se[0], 1 / math.sqrt(80 * 0.25), rel_tol=1e-5)
