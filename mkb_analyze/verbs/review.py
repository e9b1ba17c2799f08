"""Verbs of human review: push, pull, status, gold, serve."""

import os
import signal
from pathlib import Path
from typing import Any

from mkb_analyze.console import Answer
from mkb_analyze.verbs.parse import names, number
from runner.errors import UserError


class Review:
    """Let people settle what raters cannot, in Label Studio.

    The server is the one of LABEL_STUDIO_URL and LABEL_STUDIO_API_KEY, or the study's own (`review serve`).

    Examples:
      mkb-analyze review serve --study outputs/demo/study
      mkb-analyze review push --study outputs/demo/study --task content --reviewers ana,bo --blind 20%
      mkb-analyze review pull --study outputs/demo/study --task content
    """

    def push(
        self,
        study: str,
        task: str = "content",
        select: str = "doubtful,harmed",
        reviewers: str = "me",
        blind: str = "0%",
        traps: str = "0%",
        rubric: str | None = None,
    ) -> Answer:
        """Send what is missing to reviewers, one project each, the most doubtful first.

        --select doubtful,harmed,random:5%,all picks the items; --blind withholds the panel's labels on a share of them;
        --traps mixes in items whose answer is settled, that share of the others.

        Example:
          mkb-analyze review push --study S --task content --select doubtful,random:5% --reviewers ana,bo --blind 20%
        """
        from annotators.review import push as pushing
        from annotators.review.select import percent

        opened, chosen = _opened(study), _rubric(task, rubric)
        people = names(reviewers)
        if not people or any(" " in p or len(p) > 40 for p in people) or len(set(people)) < len(people):
            raise UserError(f"--reviewers {reviewers}: different names without spaces are due, in a comma list")
        harmed, weights = _importance(opened, chosen.task)
        done = pushing.push(
            opened,
            _server(opened),
            chosen,
            select=names(select),
            reviewers=people,
            blind=percent(str(blind), "blind"),
            traps=percent(str(traps), "traps"),
            harmed=harmed,
            weights=weights,
        )
        lines = [
            f"{done.n_sent} tasks sent, {done.n_present} there already; each reviewer: {done.n_blind} blind, "
            f"{done.n_traps} traps"
        ]
        lines += [f"  {who}: {url}" for who, url in done.projects.items()] + [
            f"  conflict: {c}" for c in done.conflicts
        ]
        return Answer(
            "\n".join(lines),
            {
                "n_sent": done.n_sent,
                "n_present": done.n_present,
                "n_blind": done.n_blind,
                "n_traps": done.n_traps,
                "projects": done.projects,
                "conflicts": list(done.conflicts),
            },
        )

    def pull(self, study: str, task: str = "content", rubric: str | None = None) -> Answer:
        """Bring answers back as adjudications, each checked; what cannot be used is listed with its address.

        Example:
          mkb-analyze review pull --study S --task content
        """
        from annotators.review import pull as pulling

        opened, chosen = _opened(study), _rubric(task, rubric)
        done = pulling.pull(opened, _server(opened), chosen)
        told = ", ".join(f"{n} {k}" for k, n in sorted(done.origins.items())) or "none"
        lines = [
            f"{done.n_new} answers recorded, {done.n_present} known already, {done.n_withdrawn} taken back, "
            f"{done.n_skipped} skipped by people; labels: {told}"
        ]
        lines += [f"  not usable: {x}" for x in done.unusable] + [f"  conflict: {x}" for x in done.conflicts]
        return Answer(
            "\n".join(lines),
            {
                "n_new": done.n_new,
                "n_present": done.n_present,
                "n_withdrawn": done.n_withdrawn,
                "n_skipped": done.n_skipped,
                "origins": done.origins,
                "unusable": list(done.unusable),
                "conflicts": list(done.conflicts),
            },
        )

    def status(self, study: str, task: str = "content", rubric: str | None = None) -> Answer:
        """Progress and what is left, agreement between people and with the panel, anchoring, traps missed.

        Reads the study alone: pull first.

        Example:
          mkb-analyze review status --study S --task content
        """
        from mkb_analyze.review_status import status

        found = status(_opened(study), _rubric(task, rubric))
        lines = [
            f"{who}: {r['n_done']} of {r['n_sent']} done, {r['n_left']} left"
            for who, r in sorted(found["progress"].items())
        ]
        people, panel = found["people"], found["with_panel"]
        alpha = (
            f", α {people['alpha']['estimate']:.3f}"
            if people["alpha"] and people["alpha"]["estimate"] is not None
            else ""
        )
        lines.append(
            f"people among themselves: n {people['n']}"
            + (f", raw {people['raw']['estimate']:.3f}{alpha}" if people["n"] else "")
        )
        for side in ("shown", "blind"):
            share = panel[side]["share"]
            lines.append(
                f"equal to the panel, {side}: n {panel[side]['n']}" + (f", {share:.3f}" if share is not None else "")
            )
        if panel["anchoring"] is not None:
            lines.append(f"anchoring (shown − blind): {panel['anchoring']:+.3f}")
        lines.append(
            f"traps missed: {found['traps']['n_missed']} of {found['traps']['n']} labels; "
            f"settled items: {found['n_settled']}"
        )
        if found["n_other_rubric"]:
            lines.append(f"under another version of the rubric, not counted: {found['n_other_rubric']} answers")
        return Answer("\n".join(lines), found)

    def gold(
        self,
        study: str,
        task: str = "content",
        arbiter: str | None = None,
        out: str | None = None,
        rubric: str | None = None,
    ) -> Answer:
        """Settle: agreed, outvoted by a third reviewer, or the named arbiter's word; --out FOLDER feeds `calibrate`.

        Example:
          mkb-analyze review gold --study S --task content --arbiter cy --out outputs/gold
        """
        from annotators.review import gold as golden

        opened, chosen = _opened(study), _rubric(task, rubric)
        if out is not None and chosen.task != "content":
            raise UserError(f"--out with --task {task}: a gold file holds claims; leave it out or give --task content")
        done = golden.write(
            opened, chosen, str(arbiter) if arbiter is not None else None, Path(str(out)) if out is not None else None
        )
        lines = [
            f"settled: {done.n_agreed} agreed, {done.n_majority} by a third, {done.n_arbiter} by the arbiter; "
            f"{done.n_present} before; {len(done.open)} open"
        ]
        lines += [f"  open: {x}" for x in done.open[:50]]
        return Answer(
            "\n".join(lines),
            {
                "n_agreed": done.n_agreed,
                "n_majority": done.n_majority,
                "n_arbiter": done.n_arbiter,
                "n_present": done.n_present,
                "open": list(done.open),
            },
        )

    def serve(self, study: str, port: str = "8080") -> Answer:
        """Start a local Label Studio for this study (installed on first use), print address and login; Ctrl-C stops it.

        Example:
          mkb-analyze review serve --study outputs/demo/study --port 8080
        """
        from annotators.review import book
        from annotators.review.server import running

        opened, chosen = _opened(study), number(port, "port", int, 1)
        if chosen > 65535:
            raise UserError(f"--port {port}: at most 65535 is due")
        home = book.folder(opened) / "server"
        # A shell starts background jobs with SIGINT ignored; both signals end the server, at any instant.
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, signal.default_int_handler)
        try:
            with running(home, chosen, lambda line: print(line, flush=True)) as local:
                print(f"{local.url}  login {local.email}  password {local.password}", flush=True)
                print("further reviewers sign up at the invite link (Organization, Invite people)", flush=True)
                print("Ctrl-C stops the server", flush=True)
                local.wait()
                raise UserError(f"label-studio: ended by itself; see {home / 'server.log'}, then run serve again")
        except KeyboardInterrupt:
            pass
        return Answer(f"stopped; its data is under {opened.path / 'review' / 'server'}")


def _opened(study: Any) -> Any:
    from runner.study import Study

    return Study(Path(str(study)))


def _rubric(task: Any, path: Any) -> Any:
    from annotators.rubric import load, shipped

    if task not in ("content", "attribution", "fate"):
        raise UserError(f"--task {task}: content, attribution or fate is due")
    found = load(str(path)) if path is not None else shipped(str(task))
    if found.task != task:
        raise UserError(f"--rubric {path}: it is for task {found.task}, {task} is due")
    return found


def _server(study: Any) -> Any:
    """The lab's server from the environment, or the study's own."""
    from annotators.label_studio import Server

    url, token = os.environ.get("LABEL_STUDIO_URL"), os.environ.get("LABEL_STUDIO_API_KEY")
    if not url:
        home = study.path / "review" / "server"
        if not (home / "url").exists():
            raise UserError(
                f"{study.path}: no server; run `mkb-analyze review serve` or set LABEL_STUDIO_URL and "
                "LABEL_STUDIO_API_KEY"
            )
        from annotators.review.server import login

        url, token = (home / "url").read_text("utf-8"), login(home)["token"]
    if not token:
        raise UserError("LABEL_STUDIO_API_KEY: not set; take a token from the server's Account & Settings")
    return Server(url, token)


def _importance(study: Any, task: str) -> tuple[frozenset[str], dict[str, float]]:
    """Harmed items and each item's weight: how much of the result hangs on it (log ratios of its transfers, summed)."""
    import math

    from mkb_analyze import transfers as tr

    harmed: set[str] = set()
    weights: dict[str, float] = {}
    for t in tr.build(study.attempts(), tr.Settings()):
        note = (t.conditioned.source_note_sha256 if t.conditioned else None) or (
            t.source.note_sha256 if t.source else None
        )
        name = note if task == "content" else t.key
        if name is None or t.ratio is None:
            continue
        if t.outcome is tr.Outcome.HARMED:
            harmed.add(name)
        weights[name] = weights.get(name, 0.0) + abs(math.log(t.ratio))
    return frozenset(harmed), weights
