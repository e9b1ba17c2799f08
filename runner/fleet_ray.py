"""A Ray cluster as one evaluator: every evaluation is a task with one GPU, sent again when its node is lost."""

import asyncio
import socket
import time
from typing import Any

from runner import contract, dsls
from runner.catalogue import Problem
from runner.errors import UserError
from runner.execute import Agent, Graded
from runner.grader import broken, problem_line, problem_of
from runner.grading_unit import GradingProcess, Lost, Unusable, units
from runner.records import Verdict

N_TRIES = 4  # of one kernel whose node, worker or grading process was lost
_processes: dict[str, GradingProcess] = {}  # of a worker: kept from task to task, ended with the worker


class RayFleet:
    """The GPUs (or processors) of a Ray cluster that runs already; nobody is charged the wait for a device.

    Each node's device lock holds there too, so that one evaluation at a time is timed on a device. A node whose
    contract, problem or DSL version differs from this machine's is refused. Nothing of the study is written there.

    Args:
        names: the DSLs of the experiment.
        device: `cuda` or `cpu`; by default GPUs where the cluster has some and every DSL can use them.
        address: of the cluster's head; by default `RAY_ADDRESS`, else the cluster on this machine.

    Raises:
        UserError: Ray is not installed, there is no cluster, or it has not what was asked for.
    """

    def __init__(
        self, names: Any, device: str | None = None, address: str | None = None, timeout_s: float = contract.MAX_EVAL_S
    ):
        try:
            import ray
        except ImportError:
            raise UserError("--fleet ray: Ray is not installed; pip install 'mkb-analyze[cluster]'") from None
        self._ray, self.timeout_s = ray, timeout_s
        try:
            ray.init(address or "auto", log_to_driver=False, logging_level="ERROR", namespace="mkb-analyze")
        except (ConnectionError, RuntimeError, ValueError) as fault:
            told = " ".join(str(fault).split())[:200]
            raise UserError(f"--ray-address {address or 'auto'}: no cluster ({told}); run `ray start --head`") from None
        try:
            self.device = self._device(names, device)
        except UserError:
            ray.shutdown()
            raise
        asks: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0} if self.device == "cuda" else {"num_cpus": 1}
        self._task = ray.remote(max_retries=0, scheduling_strategy="SPREAD", **asks)(graded_there)

    def _device(self, names: Any, device: str | None) -> str:
        n_gpus = self._ray.cluster_resources().get("GPU", 0)
        shared = [d for d in ("cuda", "cpu") if all(d in dsls.plugin(n).devices for n in names)]
        chosen = device or ("cuda" if "cuda" in shared and n_gpus else shared[-1] if shared else "none")
        if chosen not in shared:
            raise UserError(f"--device {chosen}: {', '.join(names)} do not all run there; take another device or DSLs")
        if chosen == "cuda" and not n_gpus:
            raise UserError("--device cuda: the cluster has no GPU; add a node with one, or say --device cpu")
        kinds = {r for n in self._ray.nodes() if n["Alive"] for r in n["Resources"] if r.startswith("accelerator_type")}
        if chosen == "cuda" and len(kinds) > 1:
            raise UserError(f"GPUs of several kinds ({', '.join(sorted(kinds))}): times do not compare; use one kind")
        return chosen

    async def __call__(self, problem: Problem, dsl: str, kernel: str) -> Graded:
        asked, why = time.monotonic(), ""
        facts = facts_of(problem, dsl)
        for _ in range(N_TRIES):
            ref = self._task.remote(problem_line(problem), dsl, kernel, self.device, facts, self.timeout_s)
            try:
                told = await ref
            except asyncio.CancelledError:
                self._ray.cancel(ref, force=True)
                raise
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError as fault:  # the node or its worker is gone
                why = f"{type(fault).__name__}: {str(fault)[:200]}"
                continue
            if "mistake" in told:
                raise UserError(told["mistake"])
            if "lost" in told:
                why = told["lost"]
                continue
            return Graded(Verdict.model_validate(told["verdict"]), max(0.0, time.monotonic() - asked - told["took_s"]))
        return Graded(broken(f"{why} ({N_TRIES} times)"), time.monotonic() - asked)

    def words(self) -> str:
        n_nodes = sum(n["Alive"] for n in self._ray.nodes())
        what = "GPU" if self.device == "cuda" else "processor"
        return f"graded on a Ray cluster ({n_nodes} nodes): one evaluation at a time holds a {what}"

    def agent(self, agent: Agent, asked: Any) -> Agent:
        """The agent itself: its attempts wait for a network and run in this process, under one set of caps."""
        return agent

    def close(self) -> None:
        """Leave the cluster; what was under way there is ended."""
        self._ray.shutdown()


def facts_of(problem: Problem, dsl: str) -> dict[str, str]:
    """What must be the same on every machine that grades for one study, by name."""
    versions = {f"version of {name}": v for name, v in dsls.plugin(dsl).versions().items()}
    return {"problem": problem.sha256, "contract": contract.digest(), **versions}


def graded_there(
    line: dict[str, Any], dsl: str, kernel: str, device: str, facts: dict[str, str], timeout_s: float
) -> dict[str, Any]:
    """Grade in a worker of the cluster: the verdict's line and the seconds it took, or `mistake`, or `lost`."""
    place = socket.gethostname()
    try:
        problem = problem_of(line)
        try:
            here = facts_of(problem, dsl)
        except OSError as fault:
            return {"mistake": f"node {place}: {problem.path} is not there ({fault.strerror}); share that folder"}
        if other := [name for name in facts if here.get(name) != facts[name]]:
            return {"mistake": f"node {place}: another {', '.join(other)} than here; install the same there"}
        if device not in _processes:
            _processes[device] = GradingProcess(units(device)[0], timeout_s)
        verdict, held_at = _processes[device].grade(problem, dsl, kernel)
        return {"verdict": verdict.line(), "took_s": time.monotonic() - held_at}
    except UserError as mistake:
        return {"mistake": f"node {place}: {mistake}"}
    except (Lost, Unusable) as fault:
        return {"lost": f"node {place}: {fault}"}
