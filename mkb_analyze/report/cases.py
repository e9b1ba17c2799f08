"""A transfer's own page: outcome, the sentence to blame, verdicts, note, fates, raters, kernels, their difference."""

from typing import Any

from annotators.records import Attribution, Side
from mkb_analyze import labels
from mkb_analyze.report import html, svg, texts
from mkb_analyze.report.site import Site, clipped, section_of
from mkb_analyze.table import Column, Table
from mkb_analyze.transfers import Transfer
from runner.records import Attempt, Verdict

_VERDICTS = (
    Column("attempt", "attempt"),
    Column("step", "step"),
    Column("at_s", "at, s", "number"),
    Column("result", "result"),
    Column("speedup", "speedup", "ratio"),
    Column("kernel_ms", "kernel, ms", "number"),
    Column("reference_ms", "reference, ms", "number"),
    Column("why", "why"),
)


def context(site: Site, t: Transfer, before: Transfer | None, after: Transfer | None) -> dict[str, Any]:
    """All that the template of a transfer's page needs."""
    data, root = site.data, "../"
    records = site.records(t)
    note, own = site.note(t.source_note_sha256), site.note(t.own_note_sha256)
    claims = data.labels.notes.get(t.source_note_sha256 or "", ())
    own_claims = data.labels.notes.get(t.own_note_sha256 or "", ())
    solo, final = (site.text("kernels", a.kernel_sha256 if a else None) for a in (t.target_solo, t.conditioned))
    attributions, anchors = _attributions(records, note, own, solo, final)
    fates, fate_anchors = _fates(site, t, note)
    lines = [site.colours.lines(a.kernel_sha256 if a else None) for a in (t.target_solo, t.conditioned)]
    used = {c.label for c in (*claims, *own_claims)}
    return {
        "t": t,
        "before": site.link(before) if before else None,
        "after": site.link(after) if after else None,
        "problem_file": site.problem_file(t.problem),
        "neighbours": [(name, links) for name, links in site.neighbours(t) if links],
        "blame": site.blame(t),
        "cause": site.cause(t),
        "adherence": data.labels.transfers[t.key].adherence if records else None,
        "timeline": svg.timeline(_series(t), f"Speedup of each submission of {t.key}"),
        "verdicts": html.table(_verdicts(t), root),
        "attributions": attributions,
        "disagreement": html.table(_votes(site, t, note), root) if len(data.labels.raters) > 1 else None,
        "note": None if note is None else texts.note(note, claims, site.palette, "claim", anchors.get(Side.NOTE, ())),
        "legend": texts.legend(site.palette, sorted(x for x in used if x)),
        "claims": html.table(_claims(site, note, claims), root) if claims and note else None,
        "n_claims": len(claims),
        "fates": fates,
        "own_note": None
        if own is None
        else texts.note(own, own_claims, site.palette, "own", [*anchors.get(Side.OWN_NOTE, ()), *fate_anchors]),
        "solo_kernel": texts.kernel(lines[0], "solo") if lines[0] is not None else None,
        "conditioned_kernel": texts.kernel(lines[1], "conditioned") if lines[1] is not None else None,
        "diff": texts.difference(lines[0], lines[1]) if lines[0] is not None and lines[1] is not None else None,
        "same_kernel": lines[0] is not None and lines[0] == lines[1],
        "solo_line": verdict_line(t.target_solo),
        "conditioned_line": verdict_line(t.conditioned),
    }


def _attempts(t: Transfer) -> list[tuple[str, Attempt]]:
    named = (("source solo", t.source), ("target solo", t.target_solo), ("conditioned", t.conditioned))
    return [(f"{role} ({a.dsl})", a) for role, a in named if a is not None]


def _series(t: Transfer) -> list[tuple[str, list[float | None]]]:
    return [
        (name, [s.verdict.speedup if s.verdict else None for s in a.submissions])
        for name, a in _attempts(t)
        if a.submissions
    ]


def _verdicts(t: Transfer) -> Table:
    rows = []
    for name, a in _attempts(t):
        for s in a.submissions:
            v = s.verdict
            why = (v.reason if v else None) or s.remark
            rows.append({"attempt": name, "step": f"submission {s.index}", "at_s": s.at_s, **_cells(v), "why": why})
        why = a.verdict.reason if a.verdict else a.reason
        rows.append({"attempt": name, "step": "final", "at_s": None, **_cells(a.verdict), "why": why})
    return Table(
        "verdicts",
        "Verdicts in order",
        "Speedup is reference ÷ kernel; a failed verdict names its stage and reason.",
        _VERDICTS,
        tuple(rows),
        exported=False,
    )


def _cells(v: Verdict | None) -> dict[str, Any]:
    if v is None:
        return {"result": "no verdict", "speedup": None, "kernel_ms": None, "reference_ms": None}
    result = "passed" if v.passed else f"failed at {v.stage.value}"
    return {"result": result, "speedup": v.speedup, "kernel_ms": v.kernel_ms, "reference_ms": v.reference_ms}


def verdict_line(a: Attempt | None) -> str:
    """One attempt's final verdict in a few words, empty where it has none."""
    if a is None or a.verdict is None:
        return ""
    if not a.verdict.passed:
        return f"failed at {a.verdict.stage.value}"
    ms = f" ({a.verdict.kernel_ms:.4g} ms)" if a.verdict.kernel_ms else ""
    return f"{a.verdict.speedup:.2f}×{ms}"


def _attributions(
    records: tuple[Attribution, ...], note: str | None, own: str | None, solo: str | None, final: str | None
) -> tuple[list[dict], dict[Side, list]]:
    out, anchors = [], {}
    texts_of = {Side.NOTE: note, Side.OWN_NOTE: own}
    kernels = {Side.SOLO_KERNEL: ("solo", solo), Side.CONDITIONED_KERNEL: ("conditioned", final)}
    for k, r in enumerate(records):
        quotes = []
        for j, q in enumerate(r.quotations):
            place = section_of(q)
            if texts_of.get(q.side) is not None:
                place = f"quote-{k}-{j}"
                anchors.setdefault(q.side, []).append((q.start, q.end, place))
            elif q.side in kernels and kernels[q.side][1] is not None and q.start < texts.MAX_SHOWN:
                prefix, text = kernels[q.side]
                place = f"{prefix}-L{texts.line_of(text, q.start)}"
            quotes.append({"where": q.side.value.replace("_", " "), "text": texts.safe(q.text), "anchor": place})
        fields = ("cause", "second_cause", "adherence", "note_unused", "rationale", "unscored")
        out.append({"rater": labels.rater_name(r.rater), "quotations": quotes, **{f: getattr(r, f) for f in fields}})
    return out, anchors


def _claims(site: Site, note: str, claims: Any) -> Table:
    flags = site.data.rubric("content").flags
    rows = [
        {
            "claim": {"href": f"#claim-{c.start}-{c.end}", "text": clipped(note[c.start : c.end])},
            "category": {"href": site.category_file(c.label), "text": c.label} if c.label else None,
            **c.flags,
            "probability": c.probability,
            "doubt": c.votes.doubt,
        }
        for c in claims
    ]
    return Table(
        "claims",
        "Claims of the note",
        "Every claim with its category, flags and doubt (the share of raters that differ).",
        (
            Column("claim", "claim"),
            Column("category", "category"),
            *(Column(f.id, f.id.replace("_", " ")) for f in flags),
            Column("probability", "probability", "number"),
            Column("doubt", "doubt", "number"),
        ),
        tuple(rows),
        exported=False,
    )


def _votes(site: Site, t: Transfer, note: str | None) -> Table:
    """Where raters differ on this transfer: its cause, its adherence, the claims of its note."""
    rows = []
    of = site.data.labels.transfers.get(t.key)
    named = [("cause", of.cause), ("adherence", of.adherence)] if of else []
    for what, votes in named:
        if votes.n_raters > 1 and votes.doubt > 0:
            rows.append({"item": what, **_vote_cells(votes)})
    for c in site.data.labels.notes.get(t.source_note_sha256 or "", ()) if note else ():
        if c.votes.n_raters > 1 and c.votes.doubt > 0:
            link = {"href": f"#claim-{c.start}-{c.end}", "text": clipped(note[c.start : c.end], 160)}
            rows.append({"item": link, **_vote_cells(c.votes)})
    return Table(
        "disagreement",
        "Where raters differ",
        "An item a row that raters label differently; the majority counts, and nothing where they tie.",
        (
            Column("item", "item"),
            Column("label", "counts as"),
            Column("doubt", "doubt", "number"),
            Column("votes", "votes"),
        ),
        tuple(rows),
        exported=False,
    )


def _vote_cells(votes: labels.Votes) -> dict[str, Any]:
    said = "; ".join(f"{r}: {v or 'unscored'}" for r, v in sorted(votes.by_rater.items()))
    return {"label": votes.label, "doubt": votes.doubt, "votes": said}


def _fates(site: Site, t: Transfer, note: str | None) -> tuple[Any, list[tuple[int, int, str]]]:
    rows, anchors = [], []
    for k, (votes, records) in enumerate(site.data.labels.fates_by_transfer.get(t.key, ())):
        if not records:
            continue
        first = records[0]
        quote = next((r.quotation for r in records if r.quotation), None)
        quoted = None
        if quote is not None:
            quoted = {"href": f"#fate-{k}", "text": clipped(quote.text)}
            anchors.append((quote.start, quote.end, f"fate-{k}"))
        claim = {"href": f"#claim-{first.start}-{first.end}", "text": clipped((note or "")[first.start : first.end])}
        rows.append({"claim": claim, "fate": votes.label, "doubt": votes.doubt, "quotation": quoted})
    if not rows:
        return None, []
    spans = _spans(site, t)
    for row in rows:
        if row["claim"]["href"] not in spans:
            row["claim"] = row["claim"]["text"]
        if isinstance(row["quotation"], dict) and site.note(t.own_note_sha256) is None:
            row["quotation"] = row["quotation"]["text"]
    table = Table(
        "fates_of_transfer",
        "Unsupported claims of the note and their fate",
        "What the conditioned attempt's own note says of each.",
        (
            Column("claim", "claim"),
            Column("fate", "fate"),
            Column("doubt", "doubt", "number"),
            Column("quotation", "in its own words"),
        ),
        tuple(rows),
        exported=False,
    )
    return html.table(table, "../"), anchors


def _spans(site: Site, t: Transfer) -> set[str]:
    """The claims that the given note shows as places."""
    if site.note(t.source_note_sha256) is None:
        return set()
    return {f"#claim-{c.start}-{c.end}" for c in site.data.labels.notes.get(t.source_note_sha256 or "", ())}
