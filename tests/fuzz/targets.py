"""What is fuzzed: each reader of outside text, with whole inputs to start from and the errors that it may answer with."""

import json
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from annotators import claims, gold, panel, rubric, seats, tasks
from annotators.raters.file_rater import FileRater
from annotators.records import Adjudication, Annotation, Attribution, Fate, Rater
from annotators.review import check as answers
from annotators.review import page
from annotators.tasks.attribution import AttributionTask
from annotators.tasks.content import Content, Note
from annotators.tasks.fate import FateTask
from mkb_analyze import check, transfers
from mkb_analyze.imports import notes as import_notes
from mkb_analyze.imports import upstream
from runner import channel, completion, prices, replay
from runner.errors import UserError
from runner.study import Study

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "study"
GOLD = ROOT / "tests" / "data" / "notes" / "gold.jsonl"


@dataclass(frozen=True)
class Target:
    """One reader: `read` gets the bytes and an empty folder; anything but `allowed` that it raises is a fault."""

    name: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[bytes, Path], object]
    allowed: tuple[type[BaseException], ...] = (UserError,)


def _file(data: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _study(data: bytes, folder: Path, table: str) -> Study:
    (folder / "study.json").write_text(json.dumps({"schema_version": 1}))
    (folder / f"{table}.jsonl").write_bytes(data)
    return Study(folder)


def _attempts(data: bytes, folder: Path) -> None:
    transfers.frame(transfers.build(_study(data, folder, "attempts").attempts()))


def _table(table: str, kind: type) -> Callable[[bytes, Path], object]:
    return lambda data, folder: list(_study(data, folder, table).read(table, kind))


def _manifest(data: bytes, folder: Path) -> None:
    (folder / "study.json").write_bytes(data)
    transfers.Settings.of(Study(folder).manifest)


def _checked(data: bytes, folder: Path) -> None:
    check.check(_study(data, folder, "attempts").path)


def _claims(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "surrogateescape")
    end = 0
    for claim in claims.split(text):
        assert end <= claim.start < claim.end <= len(text), "spans stand in order, in the text"
        assert claim.text == text[claim.start : claim.end] or claim.text.strip(), "a span never drifts"
        end = claim.end


def _upstream(data: bytes, folder: Path) -> None:
    """The mutated bytes stand in the place of one file of a store; which one, their first byte says."""
    store = folder / "store"
    for name, content in _store().items():
        target = store / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    names = sorted(n for n in _store() if n.endswith((".json", ".jsonl")))
    (store / names[data[:1][0] % len(names) if data else 0]).write_bytes(data)
    upstream.import_upstream(store, folder / "out")


@cache
def _store() -> dict[str, bytes]:
    from tests.mkb_analyze import upstream_store

    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "m"
        upstream_store.write(root, 3, n_replicates=1)
        files = sorted(p for p in root.rglob("*") if p.is_file())
        keep = [p for p in files if "p03" in str(p) or p.parent == root]
        return {str(p.relative_to(root)): p.read_bytes() for p in keep}


def _notes_folder(data: bytes, folder: Path) -> None:
    (folder / "in").mkdir()
    _file(data, folder / "in", "a.md")
    import_notes.import_notes(folder / "in", folder / "out")


@cache
def _subjects() -> dict[str, tuple]:
    """(task, item, rater) of each task, made once from a small study."""
    from annotators.views import view
    from tests.annotators.support import NOTE, OWN_NOTE, study_of_transfers

    with tempfile.TemporaryDirectory() as place:
        study = study_of_transfers(Path(place) / "s")
        triple = panel.attributable(study)[0]
        item = view(study, triple)
    content, attribution, fate = (rubric.shipped(n) for n in ("content", "attribution", "fate"))
    from annotators.tasks.fate import TracedClaim, nearest

    note, own = Note.of(NOTE), Note.of(OWN_NOTE)
    claim = note.claims[3]
    traced = TracedClaim(item.ref, note.sha256, claim, own.sha256, OWN_NOTE, nearest(claim, own.claims))
    made = {}
    for name, task, subject in (
        ("content", Content(content), note),
        ("attribution", AttributionTask(attribution), item),
        ("fate", FateTask(fate), traced),
    ):
        rater = Rater(kind="model", name="openai:m", rubric_id=task.rubric.id, rubric_sha256=task.rubric.sha256)
        made[name] = (task, subject, rater)
    return made


def _answer(name: str) -> Callable[[bytes, Path], object]:
    def read(data: bytes, folder: Path) -> object:
        task, subject, rater = _subjects()[name]
        text = data.decode("utf-8", "replace")
        n = len(task.questions(subject))
        record = task.read(subject, [tasks.Answer(text)] * n, rater)
        return type(record).model_validate_json(json.dumps(record.line()))

    return read


def _completion(data: bytes, folder: Path) -> None:
    body = completion.body_of(data)
    completion.usage_of(body)
    completion.read(body, completion.Spent())


def _labels(data: bytes, folder: Path) -> None:
    rater = FileRater(_file(data, folder, "labels.jsonl"))
    for task, subject, _ in _subjects().values():
        list(rater.rate_many(task, [subject], 1))


def _kernel_output(data: bytes, folder: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        lines = channel.Lines(ours)
        try:
            theirs.send(data[: 1 << 17])
        except BlockingIOError:
            return
        theirs.close()
        while True:
            lines.receive()


def _label_studio(data: bytes, folder: Path) -> None:
    try:
        result = json.loads(data)
    except (ValueError, RecursionError):
        return
    for name in ("content", "attribution", "fate"):
        try:
            answers.decision(result, rubric.shipped(name), "a text of some length, 中文 too" * 4)
        except answers.Unusable:
            continue


def _lines_of(table: str) -> Callable[[], list[bytes]]:
    return lambda: [b"".join(_labelled(table)[:3])]


@cache
def _labelled(table: str) -> list[bytes]:
    """Lines of a real labelled study."""
    from tests.annotators.support import study_of_transfers

    with tempfile.TemporaryDirectory() as place:
        study = study_of_transfers(Path(place) / "s", 2)
        for verb in (panel.annotate, panel.attribute, panel.trace):
            verb(study, "embedded", progress=False)
        file = study.path / f"{table}.jsonl"
        return file.read_bytes().splitlines(keepends=True) if file.exists() else []


def _example(name: str) -> Callable[[], list[bytes]]:
    return lambda: [(EXAMPLE / name).read_bytes()[:60_000].rsplit(b"\n", 1)[0] + b"\n"]


def _real_notes() -> list[bytes]:
    return [p.read_bytes() for p in sorted((GOLD.parent / "notes").iterdir())[:12]]


def _replies() -> list[bytes]:
    said = (
        {"claims": [{"n": n, "label": "procedural_advice", "evidence": "none", "dsl_specific": "yes"} for n in range(1, 9)]},
        {
            "cause": "search_truncation", "second_cause": "none", "adherence": "full", "note_unused": False,
            "quotations": [{"source": "note", "text": "Use 128 threads a row"}], "rationale": "r",
        },
        {"fate": "restated", "quotation": "Warp specialisation gave the best overlap."},
    )  # fmt: skip
    return [json.dumps(s).encode() for s in said] + [b"```json\n" + json.dumps(said[0]).encode() + b"\n```"]


def _bodies() -> list[bytes]:
    body = {
        "model": "m", "choices": [{"message": {"content": "{}", "refusal": None}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 1}},
    }  # fmt: skip
    return [json.dumps(body).encode()]


def _regions() -> list[bytes]:
    result = [
        {"id": "a", "from_name": "label", "to_name": "text", "type": "labels",
         "value": {"start": 2, "end": 9, "labels": ["procedural_advice"]}},
        {"id": "a", "from_name": page.FLAG + "evidence", "to_name": "text", "type": "choices",
         "value": {"start": 2, "end": 9, "choices": ["none"]}},
        {"id": "c", "from_name": page.COMMENT, "type": "textarea", "value": {"text": ["so"]}},
    ]  # fmt: skip
    return [json.dumps(result).encode()]


_PANEL = b"raters:\n  - embedded\n  - rater: openai:m\n    repeats: 2\n    temperature: 0.7\nlimits:\n  max_usd: 1\nprices: p.yaml\n"
_PRICES = b"m:\n  input_usd: 1.0\n  output_usd: 2.0\n"


def _panel(data: bytes, folder: Path) -> None:
    _file(_PRICES, folder, "p.yaml")
    seats.seats(str(_file(data, folder, "panel.yaml")), base_url="http://127.0.0.1:9/v1")


def targets() -> Iterator[Target]:
    """Every reader of text from outside."""
    yield Target("attempts", _example("attempts.jsonl"), _attempts)
    yield Target("manifest", _example("study.json"), _manifest)
    yield Target("check", _example("attempts.jsonl"), _checked)
    for table, kind in (("annotations", Annotation), ("attributions", Attribution), ("fates", Fate)):
        yield Target(table, _lines_of(table), _table(table, kind))
    yield Target("adjudications", _adjudications, _table("adjudications", Adjudication))
    yield Target("claims", _real_notes, _claims)
    yield Target("import notes", _real_notes, _notes_folder)
    yield Target("import upstream", lambda: [v for k, v in _store().items() if "json" in k], _upstream)
    yield Target("rubric", _rubrics, lambda data, folder: rubric.parse(data))
    yield Target("panel file", lambda: [_PANEL], _panel)
    yield Target("prices", lambda: [_PRICES], lambda data, folder: prices.load(_file(data, folder, "p.yaml")))
    yield Target("gold", lambda: [b"".join(GOLD.read_bytes().splitlines(keepends=True)[:40])], _gold)
    yield Target("labels file", _label_lines, _labels)
    yield Target("content answer", lambda: _replies()[::3], _answer("content"))
    yield Target("attribution answer", lambda: _replies()[1:2], _answer("attribution"))
    yield Target("fate answer", lambda: _replies()[2:3], _answer("fate"))
    yield Target("chat completion", _bodies, _completion)
    yield Target("Label Studio answer", _regions, _label_studio)
    yield Target(
        "kernel's messages", lambda: [b'{"ok": true, "n": 3}\n' * 3], _kernel_output, (channel.Gone, channel.Garbled)
    )
    yield Target("verdicts", _verdicts, lambda data, folder: replay.Verdicts(_file(data, folder, "verdicts.jsonl")))


def _gold(data: bytes, folder: Path) -> None:
    gold.read_gold(_file(data, folder, "gold.jsonl"), rubric.shipped("content"))


def _rubrics() -> list[bytes]:
    return [p.read_bytes() for p in sorted((ROOT / "rubrics").glob("*.yaml"))]


def _label_lines() -> list[bytes]:
    task, note, _ = _subjects()["content"]
    one = {"note_sha256": note.sha256, "start": note.claims[0].start, "end": note.claims[0].end,
           "label": "procedural_advice", "evidence": "none", "dsl_specific": "yes"}  # fmt: skip
    return [json.dumps(one).encode() + b"\n" + b"".join(_labelled("attributions")[:1] + _labelled("fates")[:1])]


def _adjudications() -> list[bytes]:
    line = {
        "task": "content", "item": "a" * 64, "person": "ana", "rubric_id": "content", "rubric_sha256": "b" * 64,
        "decision": {"claims": []}, "at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return [json.dumps(line).encode() + b"\n"]


def _verdicts() -> list[bytes]:
    verdict = json.loads((EXAMPLE / "attempts.jsonl").read_bytes().splitlines()[0])["verdict"]
    return [json.dumps({"problem": 28, "dsl": "tirx", "kernel_sha256": "c" * 64, "verdict": verdict}).encode() + b"\n"]
