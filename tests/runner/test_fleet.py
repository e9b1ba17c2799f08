"""The devices of this machine: one evaluation at a time on each, across processes; lost graders are replaced."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from mkb_analyze.console import run
from runner import fleet as fleets
from runner import grading_unit
from runner.device_lock import DeviceLock
from runner.errors import UserError
from runner.fleet import LocalFleet
from runner.grading_unit import GradingProcess, Unit, Unusable, units
from tests.runner.experiment_support import ROOT, ROW_NORM, verdict_of

KERNEL = (ROOT / "tests" / "runner" / "kernels" / "row_norm_numba.py").read_text("utf-8")
SLOW = f"import time\ntime.sleep(1.5)\n{KERNEL}"


@pytest.fixture
def own_locks(tmp_path, monkeypatch):
    """Locks of this test alone, so that no other test's evaluation is waited for."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def spans_of(locks, seconds=0.05):
    """When each lock was held, all asked for at once from threads of their own."""
    spans = []

    def hold(lock):
        with lock.held():
            begun = time.monotonic()
            time.sleep(seconds)
            spans.append((begun, time.monotonic()))

    threads = [threading.Thread(target=hold, args=(lock,)) for lock in locks]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sorted(spans)


def overlap(spans):
    return any(b[0] < a[1] for a, b in zip(spans, spans[1:], strict=False))


def test_a_whole_device_is_held_by_one_at_a_time(own_locks):
    assert not overlap(spans_of([DeviceLock("x")] * 4))


def test_slots_are_held_at_once_but_never_beside_the_whole_device(own_locks):
    assert overlap(spans_of([DeviceLock("x", 2, 0), DeviceLock("x", 2, 1)]))
    assert not overlap(spans_of([DeviceLock("x", 2, 0), DeviceLock("x")]))
    assert not overlap(spans_of([DeviceLock("x", 2, 1), DeviceLock("x", 2, 1)]))


def test_a_device_is_held_across_processes_and_freed_by_a_kill(own_locks):
    hold = "import sys, time\nfrom runner.device_lock import DeviceLock\nwith DeviceLock('x').held():\n    print('held', flush=True)\n    time.sleep(60)\n"
    env = {**os.environ, "TMPDIR": str(own_locks), "PYTHONPATH": str(ROOT)}
    holder = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, env=env, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        taken = threading.Event()
        waiting = threading.Thread(target=lambda: spans_of([DeviceLock("x")]) and taken.set(), daemon=True)
        waiting.start()
        assert not taken.wait(0.3)
        holder.kill()
        assert taken.wait(10)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_a_link_in_the_locks_place_is_refused(own_locks):
    (own_locks / f"mkb-analyze-{os.getuid()}-x.lock").symlink_to(own_locks / "elsewhere")
    with pytest.raises(UserError, match="delete that file"), DeviceLock("x").held():
        pass


def test_two_evaluations_at_once_on_a_gpu_are_refused():
    with pytest.raises(UserError, match=r"--per-device 2: a GPU takes one evaluation at a time"):
        units("cuda", 2)


def gpus(monkeypatch, names, shown=None):
    """A machine with GPUs of these names, as CuPy would tell it."""
    facts = [{"name": n.encode(), "uuid": bytes([i + 1] * 16)} for i, n in enumerate(names)]
    cupy = type(sys)("cupy")
    runtime = type("R", (), {"getDeviceProperties": staticmethod(lambda i: facts[i])})
    cupy.cuda = type("C", (), {"runtime": runtime})
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(grading_unit, "n_gpus", lambda: len(names))
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)


def test_each_visible_gpu_is_a_unit_that_sees_itself_alone(monkeypatch):
    gpus(monkeypatch, ["H200", "H200"], shown="3,5")
    found = units("cuda")
    assert [u.environment for u in found] == [{"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA_VISIBLE_DEVICES": "5"}]
    assert len({u.lock.name for u in found}) == 2 and all(u.lock.n_slots == 1 for u in found)


def test_gpus_of_several_kinds_are_refused(monkeypatch):
    gpus(monkeypatch, ["H100", "H200"])
    with pytest.raises(UserError, match="H100, H200"):
        units("cuda")


class Scripted(GradingProcess):
    """A unit whose process is played: `outcomes` are raised or let through, one an evaluation."""

    n_at_once = most = 0

    def __init__(self, unit, outcomes=(), seconds=0.0):
        super().__init__(unit, 60)
        self.outcomes, self.seconds, self.n = list(outcomes), seconds, 0

    def grade(self, problem, dsl, kernel):
        self.n += 1
        held_at = time.monotonic()
        Scripted.n_at_once += 1
        Scripted.most = max(Scripted.most, Scripted.n_at_once)
        time.sleep(self.seconds)
        Scripted.n_at_once -= 1
        if self.outcomes and (fault := self.outcomes.pop(0)) is not None:
            raise fault
        return verdict_of(kernel), held_at


@contextlib.contextmanager
def scripted_fleet(monkeypatch, *processes):
    monkeypatch.setattr(fleets, "units", lambda device, n: [p.unit for p in processes])
    handed = iter(processes)
    monkeypatch.setattr(fleets, "GradingProcess", lambda unit, timeout_s: next(handed))
    Scripted.n_at_once = Scripted.most = 0
    fleet = LocalFleet("cpu")
    try:
        yield fleet
    finally:
        fleet.close()


def unit(name):
    return Unit("cpu", "a test", DeviceLock(name))


def grade(fleet, *kernels):
    async def all_of_them():
        return await asyncio.gather(*[fleet(ROW_NORM, "numba", k) for k in kernels])

    return asyncio.run(all_of_them())


def test_every_device_works_and_none_takes_two(monkeypatch):
    with scripted_fleet(monkeypatch, *(Scripted(unit(n), seconds=0.05) for n in "ab")) as fleet:
        graded = grade(fleet, *(f"# {i}" for i in range(6)))
        assert Scripted.most == 2 and [p.n for p in fleet.processes] == [3, 3]
        # The wait for a device is told, so that no attempt is charged it.
        assert sorted(g.waited_s for g in graded)[-1] > 0.08


def test_a_kernel_whose_grader_was_lost_is_graded_again(monkeypatch):
    with scripted_fleet(monkeypatch, Scripted(unit("a"), [fleets.Lost("killed"), None])) as fleet:
        assert grade(fleet, KERNEL)[0].verdict.passed and fleet.processes[0].n == 2


def test_a_kernel_that_loses_every_grader_is_given_back(monkeypatch):
    with scripted_fleet(monkeypatch, Scripted(unit("a"), [fleets.Lost("killed")] * 3)) as fleet:
        verdict = grade(fleet, KERNEL)[0].verdict
    assert verdict.infrastructure and "3 times" in verdict.reason


def test_a_device_that_does_not_answer_is_left_out_and_the_others_go_on(monkeypatch):
    dead = Scripted(unit("a"), [Unusable("fell off")] * 9)
    with scripted_fleet(monkeypatch, dead, Scripted(unit("b"), seconds=0.02)) as fleet:
        assert all(g.verdict.passed for g in grade(fleet, *(f"# {i}" for i in range(5))))
        assert dead.n == 2


def test_a_fleet_without_a_device_left_ends_the_run(monkeypatch):
    with (
        scripted_fleet(monkeypatch, Scripted(unit("a"), [Unusable("fell off")] * 9)) as fleet,
        pytest.raises(UserError, match="no device answers any more"),
    ):
        grade(fleet, KERNEL, "# 2")


def test_a_real_grader_killed_in_mid_evaluation_is_replaced_and_gets_no_key(own_locks, monkeypatch):
    pytest.importorskip("numba", reason="pip install numba")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    killed = []

    def kill_once(process):
        wait_until(lambda: process.pid and held(own_locks))
        with open(f"/proc/{process.pid}/environ", "rb") as stream:
            killed.append(b"sk-test" in stream.read())
        os.kill(process.pid, signal.SIGKILL)

    fleet = LocalFleet("cpu")
    try:
        killer = threading.Thread(target=kill_once, args=(fleet.processes[0],))
        killer.start()
        graded = grade(fleet, SLOW)[0]
        killer.join()
        pid = fleet.processes[0].pid
    finally:
        fleet.close()
    assert killed == [False] and graded.verdict.passed and graded.verdict.unit == "cpu"
    assert graded.waited_s > 0 and pid and not os.path.exists(f"/proc/{pid}")
    assert not list(own_locks.glob("mkb-grader-*"))


def wait_until(seen, limit_s=30):
    """Look until it is so; a test must not wait for ever."""
    deadline = time.monotonic() + limit_s
    while not seen() and time.monotonic() < deadline:
        time.sleep(0.02)


def held(folder):
    """Whether somebody holds the processor now."""
    import fcntl

    with contextlib.suppress(FileNotFoundError), open(folder / f"mkb-analyze-{os.getuid()}-cpu.lock") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_closing_ends_an_evaluation_under_way_at_once(own_locks):
    pytest.importorskip("numba", reason="pip install numba")
    fleet = LocalFleet("cpu")
    forever = threading.Thread(target=_quiet, args=(fleet,), daemon=True)
    forever.start()
    wait_until(lambda: held(own_locks))
    begun = time.monotonic()
    fleet.close()
    assert time.monotonic() - begun < 5
    forever.join(5)
    assert not forever.is_alive()


def _quiet(fleet):
    with contextlib.suppress(Exception):
        fleet._grade(ROW_NORM, "numba", "import time\ntime.sleep(300)\n", time.monotonic())


def test_two_slots_of_the_processor_grade_at_once_and_the_verdict_says_so(own_locks):
    pytest.importorskip("numba", reason="pip install numba")
    fleet = LocalFleet("cpu", per_device=2)
    try:
        graded = grade(fleet, KERNEL, f"# another\n{KERNEL}")
    finally:
        fleet.close()
    assert [g.verdict.passed for g in graded] == [True, True] and "2 evaluations at once" in fleet.words()
    assert all(g.verdict.n_at_once == 2 for g in graded) and max(g.waited_s for g in graded) < 4


@pytest.mark.parametrize(
    "flags, line",
    [
        (["--fleet", "moon"], "--fleet moon"),
        (["--per-device", "0"], "--per-device 0"),
        (["--ray-address", "x:1"], "--ray-address x:1"),
    ],
)
def test_a_fleet_that_cannot_be_is_one_line(flags, line, tmp_path, capsys):
    words = ["run", "--model", "m", "--problems", "28", "--dsls", "numba,tirx", "--study", str(tmp_path / "s")]
    assert run([*words, "--base-url", "http://127.0.0.1:9/v1", "--dry-run", *flags]) == 2
    said = capsys.readouterr()
    assert line in said.err and said.err.count("\n") == 1 and not said.out


def test_the_plan_says_what_will_grade(tmp_path, capsys):
    words = ["run", "--model", "m", "--problems", "28", "--dsls", "numba,tirx", "--study", str(tmp_path / "s")]
    assert run([*words, "--base-url", "http://127.0.0.1:9/v1", "--dry-run", "--device", "cpu"]) == 0
    assert "one evaluation at a time holds it" in capsys.readouterr().out
