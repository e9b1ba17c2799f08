"""Speed of annotating, each figure a ratio in one run on one machine; and memory from 1,000 to 100,000 notes.

python -m benchmarks.annotate speed            # whole verb against the bare client, at 50 ms latency
python -m benchmarks.annotate speed --inspect-python PATH   # also inspect_ai, from a virtual environment that has it
python -m benchmarks.annotate embedded         # claims a second of the embedded rater on one core
python -m benchmarks.annotate memory           # peak memory, streamed
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL = "tiny"
NOTE = """# Notes on rmsnorm {n}

- The kernel takes 0.{n} ms; the reference takes 0.731 ms on the same draws.
- One row is 4096 values of bf16, and there are {n} rows.
- Use 128 threads a row, each loads 16 bytes at once.
- Warp specialisation gives the best overlap here.
- There is no point in tensor cores for this problem.
- Next: try two rows a block.
"""


SHORT = "- Variant {n} of the kernel takes 0.4 ms on this device.\n"


def make_study(folder: Path, n_notes: int, wording: str = NOTE):
    """A library of n notes, six claims each unless worded otherwise, without the durability of a real import."""
    from runner import digests
    from runner.study import Study

    study = Study.create(folder, origin={"kind": "notes"})
    (folder / "notes").mkdir()
    names = {}
    for n in range(n_notes):
        text = wording.replace("{n}", str(1000 + n))
        names[f"{n}.md"] = sha = digests.of_text(text)
        (folder / "notes" / f"{sha}.md").write_text(text)
    study.update_manifest(notes=names)
    return study


def bodies_of(study) -> list[dict]:
    """The requests that the verb sends for a study's notes."""
    from annotators.panel import note_digests
    from annotators.raters import make
    from annotators.rubric import shipped
    from annotators.tasks.content import Content, Note

    task, rater = Content(shipped("content")), make(f"openai:{MODEL}", base_url="http://127.0.0.1:1/v1")
    questions = (q for sha in note_digests(study) for q in task.questions(Note.of(study.note(sha), sha)))
    return [rater.client.body(rater.request(q, 1)) for q in questions]


# One contender a process: each prints requests a second. ----------------------------------------------------------


def verb(folder: str, url: str, concurrency: int) -> float:
    """The whole verb on a fresh study; only the libraries are loaded before the clock starts, as for the others."""
    import annotators.raters.openai_rater  # noqa: F401
    from annotators import panel
    from runner.limits import Limits
    from runner.study import Study

    began = time.perf_counter()
    done = panel.annotate(Study(folder), f"openai:{MODEL}", base_url=url, limits=Limits(concurrency=concurrency))
    if done.n_scored != done.n_items:
        raise SystemExit(f"only {done.n_scored} of {done.n_items} scored")
    return done.n_items / (time.perf_counter() - began)


def bare(file: str, url: str, concurrency: int, transport: str) -> float:
    """The `openai` client alone, in as many workers: no prompt is built, no answer is read, nothing is written."""
    import openai

    bodies = json.loads(Path(file).read_text())

    async def go() -> float:
        http = openai.DefaultAioHttpClient() if transport == "aiohttp" else None
        client = openai.AsyncOpenAI(api_key="none", base_url=url, http_client=http, max_retries=0)
        left = iter(bodies)

        async def work() -> None:
            for body in left:
                await client.chat.completions.create(**body)

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(concurrency)))
        took_s = time.perf_counter() - began
        await client.close()
        return len(bodies) / took_s

    return asyncio.run(go())


INSPECT = """
import json, sys, time, tempfile, os
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, GenerateConfig, get_model
from inspect_ai.solver import generate
file, url, concurrency = sys.argv[1], sys.argv[2], int(sys.argv[3])
bodies = json.load(open(file))
os.environ["OPENAI_API_KEY"] = "none"
def messages(body):
    system, user = body["messages"]
    return [ChatMessageSystem(content=system["content"]), ChatMessageUser(content=user["content"])]
samples = [Sample(input=messages(b)) for b in bodies]
model = get_model("openai/tiny", base_url=url, responses_api=False, config=GenerateConfig(max_connections=concurrency))
task = Task(dataset=MemoryDataset(samples), solver=generate())
began = time.perf_counter()
logs = eval(task, model=model, display="none", log_dir=tempfile.mkdtemp(), max_samples=concurrency)
took = time.perf_counter() - began
assert logs[0].status == "success", logs[0].error
print(len(bodies) / took)
"""


def in_process(python: str, *arguments: str) -> float:
    """Run one contender in its own process; its last line is its figure."""
    env = {
        **os.environ,
        "OPENAI_API_KEY": "none",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "MKB_ANALYZE_QUIET": "",
    }
    done = subprocess.run([python, *arguments], env=env, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{arguments[:3]}: {done.stderr[-2000:]}")
    return float(done.stdout.strip().splitlines()[-1])


def speed(given: argparse.Namespace) -> None:
    """Contenders in turn, several rounds, medians and the ratio of each round."""
    me = ("-m", "benchmarks.annotate", "one")
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.quick", "--latency-ms", str(given.latency_ms)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            url, c = server.stdout.readline().strip(), str(given.concurrency)
            file = Path(folder) / "bodies.json"
            file.write_text(json.dumps(bodies_of(make_study(Path(folder) / "bodies", given.n))))
            few = Path(folder) / "few.json"
            few.write_text(json.dumps(json.loads(file.read_text())[: max(50, given.n // 6)]))
            for k in range(given.rounds):
                make_study(Path(folder) / f"s{k}", given.n)
                runs = {
                    "bare openai, aiohttp": (sys.executable, *me, "bare", str(file), url, c, "aiohttp"),
                    "annotate, whole verb": (sys.executable, *me, "verb", str(Path(folder) / f"s{k}"), url, c),
                    "bare openai, default": (sys.executable, *me, "bare", str(file), url, c, "default"),
                }
                if given.inspect_python:
                    runs["inspect_ai eval"] = (given.inspect_python, "-c", INSPECT, str(few), url, c)
                for name, run in runs.items():
                    figures.setdefault(name, []).append(in_process(*run))
        finally:
            server.kill()
            server.wait()
    print(
        f"{given.n} requests, {given.latency_ms:g} ms latency, concurrency {given.concurrency}, {given.rounds} rounds"
    )
    ours = figures["annotate, whole verb"]
    for name, rates in figures.items():
        ratios = [a / b for a, b in zip(ours, rates, strict=True)]
        print(
            f"{name:24} {statistics.median(rates):8.1f} requests/s   the verb is {statistics.median(ratios):5.2f} x "
            f"(rounds {', '.join(f'{r:.2f}' for r in ratios)})"
        )


def embedded(given: argparse.Namespace) -> None:
    """The embedded rater: its labels alone, and the whole verb."""
    from annotators import claims, panel
    from annotators.raters.embedded import EmbeddedRater

    folder = ROOT / "tests" / "data" / "notes" / "notes"
    notes = [(t, claims.split(t)) for t in (f.read_text("utf-8") for f in sorted(folder.glob("*.md")))] * given.copies
    n_claims, rater = sum(len(c) for _, c in notes), EmbeddedRater()
    list(rater.label_notes(notes[:5]))
    began = time.perf_counter()
    list(rater.label_notes(notes))
    took_s = time.perf_counter() - began
    print(f"labels alone: {n_claims / took_s:.0f} claims/s ({n_claims} claims)")
    with tempfile.TemporaryDirectory() as at:
        study = make_study(Path(at) / "s", given.n)
        began = time.perf_counter()
        done = panel.annotate(study, "embedded", progress=False)
        print(f"whole verb: {done.n_claims / (time.perf_counter() - began):.0f} claims/s ({done.n_claims} claims)")


def memory(given: argparse.Namespace) -> None:
    """Peak memory of the whole verb over growing libraries of one-claim notes, each in its own process."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.servers.quick", "--latency-ms", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        url = server.stdout.readline().strip()
        for n in given.sizes:
            with tempfile.TemporaryDirectory() as at:
                make_study(Path(at) / "s", n, SHORT)
                for rater in given.raters:
                    peak = in_process(
                        sys.executable, "-m", "benchmarks.annotate", "one", "peak", str(Path(at) / "s"), url, rater
                    )
                    print(f"{n:7d} notes, {rater:12}: peak {peak:6.0f} MB", flush=True)
    finally:
        server.kill()
        server.wait()


def peak(folder: str, url: str, rater: str) -> float:
    """Megabytes of resident memory at the most, for one verb."""
    from annotators import panel
    from runner.limits import Limits
    from runner.study import Study

    panel.annotate(Study(folder), rater, base_url=url, limits=Limits(concurrency=16), progress=False)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="what", required=True)
    fast = verbs.add_parser("speed")
    fast.add_argument("--n", type=int, default=1500)
    fast.add_argument("--rounds", type=int, default=5)
    fast.add_argument("--concurrency", type=int, default=32)
    fast.add_argument("--latency-ms", type=float, default=50.0)
    fast.add_argument("--inspect-python")
    small = verbs.add_parser("embedded")
    small.add_argument("--copies", type=int, default=10)
    small.add_argument("--n", type=int, default=1000)
    big = verbs.add_parser("memory")
    big.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    big.add_argument("--raters", nargs="+", default=["embedded", f"openai:{MODEL}"])
    one = verbs.add_parser("one")
    one.add_argument("name")
    one.add_argument("rest", nargs="*")
    given = parser.parse_args()
    if given.what == "one":
        run = {
            "verb": lambda f, u, c: verb(f, u, int(c)),
            "bare": lambda f, u, c, t: bare(f, u, int(c), t),
            "peak": peak,
        }
        print(run[given.name](*given.rest))
    else:
        {"speed": speed, "embedded": embedded, "memory": memory}[given.what](given)


if __name__ == "__main__":
    main()
