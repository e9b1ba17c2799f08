"""A real Ray cluster of two nodes, one of them killed in mid-run: nothing lost, nothing doubled, the local run's study."""

import os
import threading
import time
from pathlib import Path

import pytest

from runner.fleet import LocalFleet
from runner.study import Study
from tests.runner.experiment_support import ROOT, asked, go
from tests.servers import agent as scripted_agent
from tests.servers.misbehaving import Server

ray = pytest.importorskip("ray", reason="pip install 'mkb-analyze[cluster]'")
pytest.importorskip("numba", reason="pip install numba")
pytest.importorskip("tvm", reason="pip install apache-tvm")


def at_work(raylet_pid):
    """Whether a worker of that node runs a task now."""
    for entry in Path("/proc").iterdir():
        try:
            mine = entry.name.isdigit() and (entry / "stat").read_text().rsplit(")", 1)[1].split()[1] == str(raylet_pid)
            if mine and b"ray::graded_there" in (entry / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


def content(path):
    """What the records of a study say, times and what follows from them left out."""
    found = {}
    for a in Study(path).attempts():
        graded = [(s.kernel_sha256, s.counted, s.verdict.passed, s.verdict.stage) for s in a.submissions]
        final = (a.verdict.passed, a.verdict.stage, a.verdict.unit)
        assert a.key not in found
        found[a.key] = (a.state, graded, final, a.kernel_sha256, a.prompt_sha256["system"], a.seed, a.usage.n_requests)
    return found


@pytest.mark.timeout(200)
def test_a_node_killed_in_mid_run_loses_and_doubles_nothing(tmp_path, monkeypatch):
    for name, value in {
        "OPENAI_API_KEY": "sk-test-0123456789abcdef",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_health_check_initial_delay_ms": "500",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }.items():
        monkeypatch.setenv(name, value)
    from ray.cluster_utils import Cluster

    from runner.fleet_ray import RayFleet

    writer = scripted_agent.Writer(wrong_first=False)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    killed = []
    try:
        other = cluster.add_node(num_cpus=1)
        raylet = next(iter(other.all_processes["raylet"])).process.pid
        fleet = RayFleet(("numba", "tirx"), address=cluster.address)

        def kill():
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not at_work(raylet):
                time.sleep(0.02)
            killed.append(at_work(raylet))
            cluster.remove_node(other, allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            with Server(writer=writer) as server:
                _, summary = go(asked(tmp_path / "ray", server), fleet)
        finally:
            killer.join()
            fleet.close()
    finally:
        cluster.shutdown()
    assert killed == [True] and not summary.left and not summary.n_broken
    lines = (tmp_path / "ray" / "attempts.jsonl").read_text().splitlines()
    assert len(lines) == 4
    local = LocalFleet("cpu", per_device=2)
    try:
        with Server(writer=writer) as server:
            go(asked(tmp_path / "local", server), local)
    finally:
        local.close()
    assert content(tmp_path / "ray") == content(tmp_path / "local")
