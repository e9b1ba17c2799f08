"""The verbs: each parses, makes one library call and words the answer."""

import inspect
from pathlib import Path
from typing import Any

from mkb_analyze.console import Answer
from runner.errors import UserError

_TRUE, _FALSE = {"true", "yes", "1", "on"}, {"false", "no", "0", "off", "none", ""}


def number(value: Any, name: str, kind: type = float, low: float | None = None) -> Any:
    """A flag's text as a number; UserError says value, rule and cure."""
    if value is None:
        return None
    try:
        result = kind(str(value))
    except (ValueError, OverflowError):
        raise UserError(f"--{name} {value}: a {'whole number' if kind is int else 'number'} is due") from None
    if result != result or result in (float("inf"), float("-inf")) or (low is not None and result < low):
        raise UserError(f"--{name} {value}: a number of at least {low:g} is due" if low is not None else f"--{name} {value}: not finite")
    return result


def switch(value: Any, name: str) -> bool:
    """A flag's text as yes or no."""
    if isinstance(value, bool):
        return value
    if str(value).lower() in _TRUE:
        return True
    if str(value).lower() in _FALSE:
        return False
    raise UserError(f"--{name} {value}: yes or no is due")


def names(value: Any) -> list[str]:
    """A comma list as its parts."""
    return [part.strip() for part in str(value).split(",") if part.strip()]


class Import:
    """Read a study made elsewhere.

    Examples:
      mkb-analyze import notes my_skills --study outputs/skills
      mkb-analyze import upstream results/my-model --study outputs/my-study
    """

    def notes(self, folder: str, study: str) -> Answer:
        """Make a study of every Markdown note below a folder (a skill library).

        Example:
          mkb-analyze import notes my_skills --study outputs/skills
        """
        from mkb_analyze.imports.notes import import_notes
        return _imported(import_notes(str(folder), str(study)), "notes", study)

    def upstream(self, store: str, study: str) -> Answer:
        """Read one model's store of the published harness (`results/<model>/`); call it once a model, same study.

        Example:
          mkb-analyze import upstream results/my-model --study outputs/my-study
        """
        from mkb_analyze.imports.upstream import import_upstream
        return _imported(import_upstream(str(store), str(study)), "attempts", study)


def _imported(done: Any, what: str, study: Any) -> Answer:
    lines = [f"{done.n_new} {what} added, {done.n_present} there already, {len(done.left_out)} left out: {study}"]
    lines += [f"  left out: {line}" for line in done.left_out]
    return Answer("\n".join(lines), {"n_new": done.n_new, "n_present": done.n_present, "left_out": list(done.left_out)})


class Problems:
    """The problem set.

    Examples:
      mkb-analyze problems list
      mkb-analyze problems show 28
      mkb-analyze problems check 28
    """

    def list(self) -> Answer:
        """List the problems: number, family, name, formats, bytes, operations and the floor on this device.

        Example:
          mkb-analyze problems list
        """
        from runner import problem_check
        rows = problem_check.listing()
        widths = {k: max(len(k), *(len(_cell(r[k])) for r in rows)) for k in rows[0]} if rows else {}
        head = "  ".join(k.ljust(w) for k, w in widths.items())
        return Answer("\n".join([head] + ["  ".join(_cell(r[k]).ljust(w) for k, w in widths.items()) for r in rows]), rows)

    def show(self, problem: str) -> Answer:
        """Print what an agent is told of one problem.

        Example:
          mkb-analyze problems show 28
        """
        from runner import catalogue
        chosen = catalogue.problem(problem)
        return Answer(chosen.statement(), {"problem": chosen.number, "name": chosen.name, "family": chosen.family,
                                           "sha256": chosen.sha256, "text": chosen.statement()})

    def check(self, problem: str = "all", seed: str = "0") -> Answer:
        """Run the quality bar on problems: speed, memory, determinism, and that the contract refuses wrong answers.

        Example:
          mkb-analyze problems check 28
        """
        from runner import catalogue, problem_check
        return _checked([problem_check.quality(p, seed=number(seed, "seed", int, 0)) for p in catalogue.select(problem)])


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _checked(reports: list[dict[str, Any]]) -> Answer:
    bad = [r for r in reports if not r["ok"]]
    lines = [f"{r['problem']:02d} {r['name']}: {'ok' if r['ok'] else '; '.join(r['faults'])} ({r['small_s']:.2f} s)" for r in reports]
    return Answer("\n".join([*lines, f"{len(reports) - len(bad)} of {len(reports)} problems keep the quality bar"]),
                  reports, 1 if bad else 0)


class Commands:
    """Everything the command line can do; a verb is a method, a group of verbs a class."""

    problems = Problems

    def evaluate(self, kernel: str, problem: str, dsl: str, size: str | None = None, device: str | None = None,
                 compile_only: str | bool = False, timeout_s: str = "600") -> Answer:
        """Grade one kernel file by the contract, in a child process, and print the verdict as JSON.

        On a machine with a GPU the full size runs there; without one, TIRx (llvm) and numba run at the small size.
        --compile-only checks the kernel's build() with no GPU. The exit status is 1 when the verdict is not passed.

        Examples:
          mkb-analyze evaluate kernel.py --problem 28 --dsl tirx
          mkb-analyze evaluate kernel.py --problem 28 --dsl cutedsl --compile-only
        """
        import json
        from runner import catalogue
        from runner.evaluate import evaluate
        verdict = evaluate(catalogue.problem(problem), str(dsl), Path(str(kernel)), size=size, device=device,
                           compile_only=switch(compile_only, "compile-only"),
                           timeout_s=number(timeout_s, "timeout-s", float, 1))
        data = verdict.line()
        return Answer(json.dumps(data, indent=1, sort_keys=True), data, 0 if verdict.passed or data.get("compiled") else 1)

    def annotate(self, study: str, rater: str = "embedded", rubric: str | None = None, repeats: str = "1",
                 max_usd: str | None = None, max_tokens: str | None = None, max_requests: str | None = None,
                 concurrency: str | None = None, base_url: str | None = None, prices: str | None = None,
                 batch: str | bool = False) -> Answer:
        """Label every claim of every note of a study with the content rubric; what is there is not asked again.

        Raters: embedded (offline), openai:MODEL (any OpenAI-compatible server; key in OPENAI_API_KEY), file:PATH,
        or a panel file (.yaml). Several raters go in a comma list.

        Examples:
          mkb-analyze annotate --study outputs/demo/study --rater embedded
          mkb-analyze annotate --study S --rater openai:my-model --base-url http://127.0.0.1:8080/v1 --max-usd 5
        """
        return _labelled("annotate", study, rater, dict(locals()))

    def attribute(self, study: str, rater: str = "embedded", which: str = "harmed", rubric: str | None = None,
                  repeats: str = "1", max_usd: str | None = None, max_tokens: str | None = None,
                  max_requests: str | None = None, concurrency: str | None = None, base_url: str | None = None,
                  prices: str | None = None, batch: str | bool = False, band: str = "0.05") -> Answer:
        """Say for each harmed transfer why it fell behind, with quotations, and for each transfer the adherence.

        --which harmed gives causes to harmed transfers and adherence to all; --which all asks a cause everywhere.

        Example:
          mkb-analyze attribute --study outputs/demo/study --rater embedded
        """
        return _labelled("attribute", study, rater, dict(locals()))

    def trace(self, study: str, rater: str = "embedded", rubric: str | None = None, repeats: str = "1",
              labels: str = "panel", max_usd: str | None = None, max_tokens: str | None = None,
              max_requests: str | None = None, concurrency: str | None = None, base_url: str | None = None,
              prices: str | None = None, batch: str | bool = False) -> Answer:
        """Follow each unsupported claim of a source note into the conditioned attempt's own note.

        Example:
          mkb-analyze trace --study outputs/demo/study --rater embedded
        """
        return _labelled("trace", study, rater, dict(locals()))

    def report(self, study: str, out: str | None = None, floor: str = "0.25", cap: str = "4", band: str = "0.05",
               tier_edge: str = "2", labels: str = "panel", seed: str = "0", resamples: str = "2000") -> Answer:
        """Write the report: one folder of HTML that opens from disk, with a CSV of each table and SVG/PNG figures.

        Example:
          mkb-analyze report --study outputs/demo/study
        """
        from mkb_analyze.report import build
        from mkb_analyze.transfers import Settings
        settings = Settings(number(floor, "floor"), number(cap, "cap"), number(band, "band"), number(tier_edge, "tier-edge"))
        target = Path(str(out)) if out else Path(str(study)) / "report"
        made = build.report(Path(str(study)), target, settings=settings, labels=str(labels),
                            seed=number(seed, "seed", int, 0), n_resamples=number(resamples, "resamples", int, 100))
        return Answer(str(made.index), {"index": str(made.index), "n_pages": made.n_pages, "n_transfers": made.n_transfers})

    @staticmethod
    def overview() -> str:
        """The list of verbs with what each does, for `mkb-analyze --help`."""
        lines = ["mkb-analyze VERB [options]: whether a kernel agent's note helps or harms the next attempt, and why", ""]
        for name, verb in vars(Commands).items():
            if name.startswith("_") or name == "overview":
                continue
            if inspect.isclass(verb):
                for inner, method in vars(verb).items():
                    if not inner.startswith("_"):
                        lines.append(f"  {(name + ' ' + inner).replace('_', '-'):18s} {_first(method)}")
            else:
                lines.append(f"  {name.replace('_', '-'):18s} {_first(verb)}")
        lines += ["", "`mkb-analyze VERB --help` shows a verb's options and an example. On every verb: --json, --quiet,",
                  "--log-file FILE. Exit status: 0 done, 1 a negative verdict, 2 a mistake in what was asked, 130 stopped."]
        return "\n".join(lines)


setattr(Commands, "import", Import)


def _first(verb: Any) -> str:
    return inspect.cleandoc(verb.__doc__ or "").split("\n", 1)[0]
