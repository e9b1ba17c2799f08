"""The verbs: each parses, makes one library call and words the answer."""

import inspect
from pathlib import Path
from typing import Any

from mkb_analyze.console import Answer
from mkb_analyze.verbs.imports import Import
from mkb_analyze.verbs.label import harmed_only, labelled
from mkb_analyze.verbs.parse import number, switch
from mkb_analyze.verbs.problems import Problems
from runner.errors import UserError


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
        if not Path(kernel).is_file():
            raise UserError(f"{kernel}: no such file; give the kernel's source file")
        verdict = evaluate(catalogue.problem(problem), str(dsl), Path(kernel), size=size, device=device,
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
        return labelled("annotate", study, rater, repeats=repeats, rubric=rubric, batch=batch, base_url=base_url, prices=prices,
                        limits=dict(max_usd=max_usd, max_tokens=max_tokens, max_requests=max_requests, concurrency=concurrency))

    def attribute(self, study: str, rater: str = "embedded", which: str = "harmed", rubric: str | None = None,
                  repeats: str = "1", max_usd: str | None = None, max_tokens: str | None = None,
                  max_requests: str | None = None, concurrency: str | None = None, base_url: str | None = None,
                  prices: str | None = None, batch: str | bool = False, band: str = "0.05") -> Answer:
        """Say for each harmed transfer why it fell behind, with quotations, and for each transfer the adherence.

        --which harmed gives causes to harmed transfers and adherence to all; --which all asks a cause everywhere.

        Example:
          mkb-analyze attribute --study outputs/demo/study --rater embedded
        """
        from mkb_analyze.transfers import Settings
        if which not in ("harmed", "all"):
            raise UserError(f"--which {which}: harmed or all is due")
        extra = {"select": harmed_only(Settings(band=number(band, "band", float, 0)))} if which == "harmed" else {}
        return labelled("attribute", study, rater, repeats=repeats, rubric=rubric, batch=batch, base_url=base_url, prices=prices,
                        limits=dict(max_usd=max_usd, max_tokens=max_tokens, max_requests=max_requests, concurrency=concurrency),
                        **extra)

    def trace(self, study: str, rater: str = "embedded", rubric: str | None = None, repeats: str = "1",
              max_usd: str | None = None, max_tokens: str | None = None,
              max_requests: str | None = None, concurrency: str | None = None, base_url: str | None = None,
              prices: str | None = None, batch: str | bool = False) -> Answer:
        """Follow each unsupported claim of a source note into the conditioned attempt's own note.

        Example:
          mkb-analyze trace --study outputs/demo/study --rater embedded
        """
        return labelled("trace", study, rater, repeats=repeats, rubric=rubric, batch=batch, base_url=base_url, prices=prices,
                        limits=dict(max_usd=max_usd, max_tokens=max_tokens, max_requests=max_requests, concurrency=concurrency))

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
