"""What tests of the runner's experiments share: a problem, a grader that takes no time, runs over real HTTP."""

import asyncio
import hashlib
from pathlib import Path

from runner import contract, experiment
from runner.agent import Settings
from runner.catalogue import Problem
from runner.execute import Graded
from runner.limits import Limits
from runner.plan import Wanted
from runner.records import Stage, Verdict

ROOT = Path(__file__).resolve().parents[2]
ROW_NORM = Problem(0, "row_norm", "mlp_norm", ROOT / "tests" / "exploits" / "row_norm.py")
FAST = Limits(n_tries=2, timeout_s=20)


class Grader:
    """An `Evaluate` that reads the kernel instead of running it: a kernel with `def solve(:` does not load.

    `trouble` is called with the number of the evaluation and the kernel; a verdict that it returns is taken.
    """

    def __init__(self, trouble=None, seconds=0.0):
        self.kernels, self.trouble, self.seconds = [], trouble, seconds
        self.n_under_way = self.most_under_way = 0

    async def __call__(self, problem, dsl, kernel):
        self.kernels.append(kernel)
        self.n_under_way += 1
        self.most_under_way = max(self.most_under_way, self.n_under_way)
        await asyncio.sleep(self.seconds)
        self.n_under_way -= 1
        verdict = self.trouble(len(self.kernels), kernel) if self.trouble else None
        return Graded(verdict or verdict_of(kernel))


def verdict_of(kernel):
    common = {"contract_sha256": contract.digest(), "device": "a test", "size": "small"}
    if "def solve(:" in kernel:
        return Verdict(passed=False, stage=Stage.LOAD, reason="SyntaxError", **common)
    speedup = 1 + int(hashlib.sha256(kernel.encode()).hexdigest()[:2], 16) / 256
    return Verdict(passed=True, stage=Stage.DONE, kernel_ms=1.0, reference_ms=speedup, speedup=speedup, **common)


def asked(study, server, *, n_aa=0, settings=None, limits=FAST, docs=None, **given):
    """An experiment on one problem in numba and tirx."""
    wanted = Wanted("tiny", [ROW_NORM], ("numba", "tirx"), given.pop("replicates", 1), n_aa, seed=given.pop("seed", 0))
    docs = docs or ROOT / "tests" / "runner" / "kernels"
    return experiment.Asked(
        wanted, study, settings or Settings(), limits, base_url=server.url if server else None, docs=docs, **given
    )


def go(what, grader=None):
    """Run it; (the plan it began with, what became of it)."""
    agent = experiment.agent_of(what, "cpu")
    return experiment.run(what, agent, grader or Grader(), "cpu")
