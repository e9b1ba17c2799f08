"""Lists of cases: the review list, transfers, problems, claim categories, attempts and what is amiss."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from mkb_analyze.report import html
from mkb_analyze.report.chapters import losses
from mkb_analyze.report.site import MAX_ROWS, Site, clipped, slug
from mkb_analyze.table import Column, Table
from mkb_analyze.tables import outcomes
from mkb_analyze.tables.groups import Resampling, harmed, helped, lift
from mkb_analyze.transfers import Transfer

N_LOSSES, N_DOUBTFUL, N_EXAMPLES = 40, 100, 250


def split(table: Table, base: str, model_of: Callable[[dict], str]) -> list[tuple[str, str, Table]]:
    """(file, name, part): the table alone where it is short, else one part a model, each at most MAX_ROWS long."""
    if len(table.rows) <= MAX_ROWS:
        return [(f"{base}.html", "all", table)]
    groups: dict[str, list[dict]] = {}
    for row in table.rows:
        groups.setdefault(model_of(row), []).append(row)
    out = []
    for model, rows in groups.items():
        for k in range(0, len(rows), MAX_ROWS):
            name = model if len(rows) <= MAX_ROWS else f"{model}, part {k // MAX_ROWS + 1}"
            part = replace(table, rows=tuple(rows[k : k + MAX_ROWS]), title=f"{table.title}: {name}")
            out.append((f"{base}-{slug(name)}.html" if out else f"{base}.html", name, part))
    return out


def transfers(site: Site) -> list[tuple[str, str, Table]]:
    models = {t.key: t.model for t in site.data.transfers}
    table = outcomes.transfer_rows(site.data.transfers, site.files)
    return split(table, "transfers", lambda row: models[row["transfer"]["text"]])


def attempts(site: Site) -> list[tuple[str, str, Table]]:
    models = {a.key: a.model for a in site.data.attempts}
    return split(site.data.by_name["attempts"], "attempts", lambda row: models[row["attempt"]])


def problems(site: Site) -> Table:
    """One row a problem: counts, lift and the way to its page."""
    rows = []
    for problem, group in site.by_problem.items():
        done = [t for t in group if t.resolved]
        value = lift(done, "paired lift", Resampling(1, 0)) if done else None
        rows.append(
            {
                "problem": {
                    "href": site.problem_file(problem),
                    "text": f"{problem} {group[0].problem_name or ''}".strip(),
                },
                "family": group[0].family,
                "n": len(done),
                "n_helped": sum(map(helped, done)),
                "n_neutral": len(done) - sum(map(helped, done)) - sum(map(harmed, done)),
                "n_harmed": sum(map(harmed, done)),
                "lift": value.estimate if value is not None else None,
            }
        )
    return Table(
        "problems",
        "Every problem",
        "Lift is 100 × (geometric mean of the paired ratios − 1) of one problem: a description, not an estimate.",
        (
            Column("problem", "problem"),
            Column("family", "family"),
            Column("n", "n", "number"),
            Column("n_helped", "helped", "number"),
            Column("n_neutral", "neutral", "number"),
            Column("n_harmed", "harmed", "number"),
            Column("lift", "lift", "percent"),
        ),
        tuple(rows),
        exported=False,
    )


def groups_to_review(site: Site) -> Table:
    """Groups over the harm limit, each harmed problem linked to its worst transfer in the group."""
    rows = []
    for model, direction, n, bad in site.data.harmed_groups:
        worst: dict[int, Transfer] = {}
        for t in sorted(bad, key=lambda t: (t.ratio, t.key)):
            worst.setdefault(t.problem, t)
        rows.append(
            {
                "model": model,
                "direction": direction,
                "n_harmed": len(bad),
                "n": n,
                "rate": len(bad) / n,
                "problems": [site.link(worst[p], str(p)) for p in sorted(worst)],
            }
        )
    return Table(
        "groups_to_review",
        "Groups with a harm rate over 10%",
        "A number leads to the group's worst transfer on that problem.",
        (
            Column("model", "model"),
            Column("direction", "direction"),
            Column("n_harmed", "harmed", "number"),
            Column("n", "of", "number"),
            Column("rate", "harm rate", "share"),
            Column("problems", "problems to review"),
        ),
        tuple(rows),
        exported=False,
    )


def largest_losses(site: Site, limit: int = N_LOSSES) -> Table:
    """Harmed transfers, the largest loss first, each with its cause and the sentence that is quoted for it."""
    rows = []
    for t in losses(site.data, limit):
        blame, cause = site.blame(t), site.cause(t)
        rows.append(
            {
                "transfer": site.link(t),
                "ratio": t.ratio,
                "standing": t.standing,
                "cause": cause.label.replace("_", " ") if cause and cause.label else None,
                "sentence": site.link(t, clipped(blame.text, 200), blame.place) if blame else None,
            }
        )
    return Table(
        "largest_losses",
        "Largest losses",
        "The smallest paired ratios first. The sentence is what raters quote from the note, else its first claim "
        "without support; it leads to its place.",
        (
            Column("transfer", "transfer"),
            Column("ratio", "paired ratio", "ratio"),
            Column("standing", "source stands"),
            Column("cause", "cause"),
            Column("sentence", "sentence in the note"),
        ),
        tuple(rows),
        exported=False,
    )


def doubtful(site: Site) -> Table:
    """Claims and causes that raters label differently, with the way to each."""
    rows: list[dict[str, Any]] = []
    for key, of in site.data.labels.transfers.items():
        for what, votes in (("cause", of.cause), ("adherence", of.adherence)):
            if votes.n_raters > 1 and votes.doubt > 0:
                item = {"href": f"{site.files[key]}#why", "text": key} if key in site.files else key
                rows.append({"task": what, "item": item, "votes": votes, "order": (key, what)})
    for sha, claims in site.data.labels.notes.items():
        for c in claims:
            if c.votes.n_raters > 1 and c.votes.doubt > 0:
                rows.append(
                    {"task": "content", "span": (sha, c.start, c.end), "votes": c.votes, "order": (sha, c.start)}
                )
    rows.sort(key=lambda r: (-r["votes"].doubt, r["task"], r["order"]))
    shown = [
        {
            "task": r["task"],
            "item": r.get("item") or _claim_link(site, *r["span"]),
            "doubt": r["votes"].doubt,
            "label": r["votes"].label,
            "votes": "; ".join(f"{k}: {v or 'unscored'}" for k, v in sorted(r["votes"].by_rater.items())),
        }
        for r in rows[:N_DOUBTFUL]
    ]
    return Table(
        "doubtful_items",
        "Doubtful labels",
        "Items that raters label differently, the widest split first: what a person should settle.",
        (
            Column("task", "task"),
            Column("item", "item"),
            Column("doubt", "doubt", "number"),
            Column("label", "counts as"),
            Column("votes", "votes"),
        ),
        tuple(shown),
        (f"The first {N_DOUBTFUL} of {len(rows)} are shown.",) if len(rows) > N_DOUBTFUL else (),
        exported=False,
    )


def _claim_link(site: Site, sha: str, start: int, end: int) -> Any:
    text = clipped((site.note(sha) or sha)[start:end], 160) if site.note(sha) else f"{sha[:12]}… {start}–{end}"
    ways = site.by_note.get(sha)
    if not ways or site.note(sha) is None:
        return text
    return site.link(ways[0], text, f"claim-{start}-{end}")


def examples(site: Site) -> dict[str, Table]:
    """For each category its claims as they stand in notes, those of harmed transfers first, linked to their place."""
    found: dict[str, list[tuple]] = {}
    rank = {"harmed": 0, "helped": 1, "neutral": 2}
    for sha, claims in site.data.labels.notes.items():
        ways = site.by_note.get(sha, [])
        t = min(ways, key=lambda t: (rank.get(str(t.outcome), 3), t.key)) if ways else None
        for c in claims:
            if c.label is not None:
                place = (rank.get(str(t.outcome), 3), t.key, c.start) if t else (4, sha, c.start)
                found.setdefault(c.label, []).append((place, sha, c, t))
    return {name: _examples(site, name, sorted(rows, key=lambda r: r[0])) for name, rows in found.items()}


def _examples(site: Site, name: str, rows: Sequence[tuple]) -> Table:
    flags = site.data.rubric("content").flags
    out = []
    for _, sha, c, t in rows[:N_EXAMPLES]:
        out.append(
            {
                "claim": _claim_link(site, sha, c.start, c.end),
                "model": t.model if t else None,
                "problem": t.problem if t else None,
                "outcome": t.outcome or "unresolved" if t else None,
                **c.flags,
                "doubt": c.votes.doubt,
            }
        )
    return Table(
        "examples",
        f"Claims labelled {name.replace('_', ' ')}",
        "Each leads to its place in the note; notes of harmed transfers stand first.",
        (
            Column("claim", "claim"),
            Column("model", "model"),
            Column("problem", "problem", "number"),
            Column("outcome", "transfer"),
            *(Column(f.id, f.id.replace("_", " ")) for f in flags),
            Column("doubt", "doubt", "number"),
        ),
        tuple(out),
        (f"The first {N_EXAMPLES} of {len(rows)} are shown.",) if len(rows) > N_EXAMPLES else (),
        exported=False,
    )


def categories(site: Site) -> Iterator[tuple[dict, dict]]:
    """For each label (row of the list of categories, what its own page needs)."""
    data, found = site.data, examples(site)
    content = data.rubric("content")
    counts = {r["category"]: r for r in data.by_name["content"].rows}
    gaps = {r["category"]: r for r in data.by_name["categories"].rows if r["model"] == "all"}
    for name in content.answers:
        label = content.label(name) if name in content.ids else None
        gap = gaps.get(name)
        yield (
            {
                "category": {"href": site.category_file(name), "text": name.replace("_", " ")},
                "is": label.is_ if label else None,
                "notes": counts[name]["notes"],
                "difference": gap["difference"] if gap else None,
            },
            {
                "name": name,
                "label": label,
                "css": site.palette.css.get(name, ""),
                "unsupported": name in site.palette.unsupported,
                "gap": gap,
                "counts": counts[name],
                "examples": html.table(found[name], "../") if name in found else None,
            },
        )


def category_table(rows: Sequence[dict]) -> Table:
    return Table(
        "claim_categories",
        "Categories",
        "Difference is P(category | harmed) − P(category | helped) in points; open a category for its examples.",
        (
            Column("category", "category"),
            Column("is", "what it is"),
            Column("notes", "notes with it", "share"),
            Column("difference", "difference, points", "points"),
        ),
        tuple(rows),
        exported=False,
    )


def amiss(site: Site) -> Iterator[Table]:
    """What is missing, skipped, unscored or stale: one table a kind, every case with its way and reason."""
    table = site.data.by_name["quality"]
    kinds: dict[str, list[dict]] = {}
    for row in table.rows:
        kinds.setdefault(row["kind"], []).append(row)
    for kind, rows in kinds.items():
        shown = [{**r, "item": _item(site, r["item"])} for r in rows[:MAX_ROWS]]
        notes = (f"The first {MAX_ROWS} of {len(rows)} are shown; the CSV has all.",) if len(rows) > MAX_ROWS else ()
        title = f"{kind[0].upper()}{kind[1:]} ({len(rows)})"
        yield replace(table, title=title, columns=table.columns[1:], rows=tuple(shown), notes=notes)
    if not kinds:
        yield replace(table, rows=())


def _item(site: Site, item: str) -> Any:
    if item in site.files:
        return {"href": site.files[item], "text": item}
    if item in site.by_note:
        return site.link(site.by_note[item][0], item, "note")
    return item
