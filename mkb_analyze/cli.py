"""The verbs: each parses, makes one library call and words the answer."""

import inspect
from pathlib import Path
from typing import Any

from mkb_analyze.console import Answer
from mkb_analyze.verbs import attempts, machine, numbers, studies
from mkb_analyze.verbs import run as running
from mkb_analyze.verbs.imports import Import
from mkb_analyze.verbs.label import harmed_only, labelled
from mkb_analyze.verbs.parse import number
from mkb_analyze.verbs.problems import Problems
from mkb_analyze.verbs.review import Review
from runner.errors import UserError


class Commands:
    """Everything the command line can do; a verb is a method, a group of verbs a class."""

    problems = Problems
    review = Review

    def evaluate(
        self,
        kernel: str,
        problem: str,
        dsl: str,
        size: str | None = None,
        device: str | None = None,
        compile_only: str | bool = False,
        timeout_s: str = "600",
        problem_set: str | None = None,
        compile_baseline: str | bool = False,
    ) -> Answer:
        """Grade one kernel file by the contract, in a child process, and print the verdict as JSON.

        On a machine with a GPU the full size runs there; without one, TIRx (llvm) and numba run at the small size.
        --compile-only checks the kernel's build() with no GPU. The exit status is 1 when the verdict is not passed.
        --problem-set takes a checkout of the published set or of KernelBench (extra torch), where the baseline is
        PyTorch eager or, with --compile-baseline, torch.compile; KernelBench's level 1, problem 94 has number 1094.

        Examples:
          mkb-analyze evaluate kernel.py --problem 28 --dsl tirx
          mkb-analyze evaluate kernel.py --problem 28 --dsl cutedsl --compile-only
        """
        return attempts.evaluated(
            kernel, problem, dsl, size, device, compile_only, timeout_s, problem_set, compile_baseline
        )

    def annotate(
        self,
        study: str,
        rater: str = "embedded",
        rubric: str | None = None,
        repeats: str = "1",
        max_usd: str | None = None,
        max_tokens: str | None = None,
        max_requests: str | None = None,
        concurrency: str | None = None,
        base_url: str | None = None,
        prices: str | None = None,
        batch: str | bool = False,
    ) -> Answer:
        """Label every claim of every note of a study with the content rubric; what is there is not asked again.

        Raters: embedded (offline), openai:MODEL (any OpenAI-compatible server; key in OPENAI_API_KEY), file:PATH,
        or a panel file (.yaml). Several raters go in a comma list.

        Examples:
          mkb-analyze annotate --study outputs/demo/study --rater embedded
          mkb-analyze annotate --study S --rater openai:my-model --base-url http://127.0.0.1:8080/v1 --max-usd 5
        """
        return labelled(
            "annotate",
            study,
            rater,
            repeats=repeats,
            rubric=rubric,
            batch=batch,
            base_url=base_url,
            prices=prices,
            limits={
                "max_usd": max_usd,
                "max_tokens": max_tokens,
                "max_requests": max_requests,
                "concurrency": concurrency,
            },
        )

    def attribute(
        self,
        study: str,
        rater: str = "embedded",
        which: str = "harmed",
        rubric: str | None = None,
        repeats: str = "1",
        max_usd: str | None = None,
        max_tokens: str | None = None,
        max_requests: str | None = None,
        concurrency: str | None = None,
        base_url: str | None = None,
        prices: str | None = None,
        batch: str | bool = False,
        cap: str | None = None,
        band: str | None = None,
        baseline: str | None = None,
    ) -> Answer:
        """Say for each harmed transfer why it fell behind, with quotations, and for each transfer the adherence.

        --which harmed gives causes to harmed transfers and adherence to all; --which all asks a cause everywhere.

        Example:
          mkb-analyze attribute --study outputs/demo/study --rater embedded
        """
        if which not in ("harmed", "all"):
            raise UserError(f"--which {which}: harmed or all is due")
        extra = (
            {"select": harmed_only(numbers.settings_of(study, None, cap, band, None, baseline))}
            if which == "harmed"
            else {}
        )
        return labelled(
            "attribute",
            study,
            rater,
            repeats=repeats,
            rubric=rubric,
            batch=batch,
            base_url=base_url,
            prices=prices,
            limits={
                "max_usd": max_usd,
                "max_tokens": max_tokens,
                "max_requests": max_requests,
                "concurrency": concurrency,
            },
            **extra,
        )

    def trace(
        self,
        study: str,
        rater: str = "embedded",
        rubric: str | None = None,
        repeats: str = "1",
        max_usd: str | None = None,
        max_tokens: str | None = None,
        max_requests: str | None = None,
        concurrency: str | None = None,
        base_url: str | None = None,
        prices: str | None = None,
        batch: str | bool = False,
    ) -> Answer:
        """Follow each unsupported claim of a source note into the conditioned attempt's own note.

        Example:
          mkb-analyze trace --study outputs/demo/study --rater embedded
        """
        return labelled(
            "trace",
            study,
            rater,
            repeats=repeats,
            rubric=rubric,
            batch=batch,
            base_url=base_url,
            prices=prices,
            limits={
                "max_usd": max_usd,
                "max_tokens": max_tokens,
                "max_requests": max_requests,
                "concurrency": concurrency,
            },
        )

    def calibrate(
        self,
        gold: str,
        rater: str = "embedded",
        out: str | None = None,
        rubric: str | None = None,
        base_url: str | None = None,
    ) -> Answer:
        """Score a rater against gold labels: precision, recall and F1 by category, confusion, bound to its digests.

        Example:
          mkb-analyze calibrate --gold tests/data/notes/gold.jsonl --rater embedded --out outputs/calibration.json
        """
        return numbers.calibrated(gold, rater, out, rubric, base_url)

    def report(
        self,
        study: str,
        out: str | None = None,
        floor: str | None = None,
        cap: str | None = None,
        band: str | None = None,
        tier_edge: str | None = None,
        baseline: str | None = None,
        labels: str = "panel",
        calibration: str | None = None,
        seed: str = "0",
        resamples: str = "2000",
    ) -> Answer:
        """Write the report: one folder of HTML that opens from disk, with a CSV of each table and SVG/PNG figures.

        --labels panel (majority, a person's settled label first), gold (settled only) or rater:NAME; --calibration
        FILE adds rates corrected for that rater's errors. Settings are flags, else what study.json names under
        `settings`, else floor 0.25, cap 4, band 0.05, tier edge 2, baseline own.

        Example:
          mkb-analyze report --study outputs/demo/study
        """
        from mkb_analyze.report import build

        target = Path(str(out)) if out else Path(str(study)) / "report"
        drawn = {"seed": number(seed, "seed", int, 0), "n_resamples": number(resamples, "resamples", int, 100)}
        made = build.report(
            Path(str(study)),
            target,
            settings=numbers.settings_of(study, floor, cap, band, tier_edge, baseline),
            labels=str(labels),
            calibration=numbers.calibration_of(calibration),
            **drawn,
        )
        return Answer(
            str(made.index), {"index": str(made.index), "n_pages": made.n_pages, "n_transfers": made.n_transfers}
        )

    def table(
        self,
        name: str,
        study: str,
        format: str = "csv",
        out: str | None = None,
        floor: str | None = None,
        cap: str | None = None,
        band: str | None = None,
        tier_edge: str | None = None,
        baseline: str | None = None,
        labels: str = "panel",
        calibration: str | None = None,
        seed: str = "0",
        resamples: str = "2000",
    ) -> Answer:
        """Print or write one table of the report: csv, md, latex, json or parquet.

        Example:
          mkb-analyze table outcomes --study outputs/demo/study --format md
        """
        return numbers.table(
            study,
            name,
            format,
            out,
            numbers.settings_of(study, floor, cap, band, tier_edge, baseline),
            labels,
            seed,
            resamples,
            calibration,
        )

    def figure(
        self,
        name: str,
        study: str,
        style: str = "screen",
        out: str | None = None,
        floor: str | None = None,
        cap: str | None = None,
        band: str | None = None,
        tier_edge: str | None = None,
        baseline: str | None = None,
        labels: str = "panel",
        seed: str = "0",
        resamples: str = "2000",
    ) -> Answer:
        """Draw one figure of the report: outcomes, paired_ratios, standing, categories, causes and the others.

        --out names an .svg, .png or .pdf file (NAME.svg here where it is left out); --style paper is as wide as a
        column of text, with 8-point type.

        Example:
          mkb-analyze figure paired_ratios --study outputs/demo/study --style paper --out outputs/ratios.pdf
        """
        settings = numbers.settings_of(study, floor, cap, band, tier_edge, baseline)
        return numbers.figure(study, name, style, out, settings, labels, seed, resamples)

    def power(
        self,
        points: str,
        base: str = "0.3",
        per_problem: str = "2",
        icc: str = "0.1",
        target: str = "0.8",
        sensitivity: str = "1",
        specificity: str = "1",
        seed: str = "0",
    ) -> Answer:
        """How many problems and transfers show a difference of so many points, by simulation under clustering.

        Example:
          mkb-analyze power 15 --base 0.3 --per-problem 4
        """
        return numbers.power(points, base, per_problem, icc, target, sensitivity, specificity, seed)

    def simulate(
        self,
        out: str,
        models: str = "2",
        problems: str = "74",
        replicates: str = "1",
        raters: str = "2",
        seed: str = "0",
    ) -> Answer:
        """Write a synthetic study with known truth, marked so in every output.

        Example:
          mkb-analyze simulate --out outputs/synthetic --models 1 --problems 6
        """
        return numbers.simulated(out, models, problems, replicates, raters, seed)

    def run(
        self,
        model: str,
        problems: str,
        dsls: str = "cutedsl,tirx",
        replicates: str = "1",
        study: str = "outputs/study",
        dry_run: str | bool = False,
        redo_stale: str | bool = False,
        aa: str = "0",
        agent: str = "model",
        base_url: str | None = None,
        prices: str | None = None,
        docs: str | None = None,
        device: str | None = None,
        seed: str = "0",
        budget_minutes: str = "40",
        max_submissions: str = "10",
        distillations: str = "1",
        temperature: str | None = None,
        concurrency: str = "4",
        max_usd: str | None = None,
        max_tokens: str | None = None,
        max_requests: str | None = None,
        fleet: str = "local",
        per_device: str = "1",
        ray_address: str | None = None,
    ) -> Answer:
        """Run an experiment: solo attempts, their notes, conditioned attempts; a repeated call does what is missing.

        --dry-run prints the plan (done, missing, stale and why) with its price. --aa N adds N A/A twins: solos made
        twice, the report's null. --agent replay:DIR takes kernels and notes from disk. The key comes from
        OPENAI_API_KEY. The exit status is 1 when an attempt broke. See docs/run.md.

        --fleet local grades on every visible GPU (else on the processor), one evaluation at a time on each, while
        --concurrency attempts wait for their model. --per-device N tries N at once on a processor. --fleet ray grades on the Ray cluster
        at --ray-address (by default the one that runs here), one GPU an evaluation.

        Examples:
          mkb-analyze run --model my-model --problems '28,36,6*' --dsls cutedsl,tirx --replicates 3 --dry-run
          mkb-analyze run --model my-model --problems 28 --study outputs/my-study --max-usd 20 --prices prices.yaml
        """
        return running.ran(
            model,
            problems,
            dsls,
            study,
            dry_run,
            replicates=replicates,
            redo_stale=redo_stale,
            aa=aa,
            agent=agent,
            base_url=base_url,
            prices=prices,
            docs=docs,
            device=device,
            seed=seed,
            budget_minutes=budget_minutes,
            max_submissions=max_submissions,
            distillations=distillations,
            temperature=temperature,
            concurrency=concurrency,
            max_usd=max_usd,
            max_tokens=max_tokens,
            max_requests=max_requests,
            fleet=fleet,
            per_device=per_device,
            ray_address=ray_address,
        )

    def replay(self, folder: str, study: str, timeout_s: str = "600") -> Answer:
        """Record attempts from kernels and notes on disk: each kernel graded, each attempt appended; resumes.

        The folder's layout stands in runner/replay.py: MODEL/pNN_rK_solo_DSL/{s1.py …, final.py, SKILL.md}.

        Example:
          mkb-analyze replay my_kernels --study outputs/my-study
        """
        return attempts.replayed(folder, study, timeout_s)

    def check(self, study: str, repair: str | bool = False) -> Answer:
        """Read every line and text of a study and say what is lost, cut or changed; --repair mends what a crash left.

        A repair moves a torn last line aside and deletes half-written files, and does nothing else. The exit status is
        1 when something recorded cannot be read.

        Examples:
          mkb-analyze check --study outputs/demo/study
          mkb-analyze check --study outputs/demo/study --repair
        """
        return studies.checked(study, repair)

    def doctor(self, endpoint: str | None = None, study: str | None = None, quick: str | bool = False) -> Answer:
        """Say what is installed here and what works, each with its cure; no key is shown.

        Each installed DSL compiles a tiny kernel, and runs it where its device is here (--quick leaves that out). The
        server is --endpoint, else OPENAI_BASE_URL; Label Studio is LABEL_STUDIO_URL, else the one that serves --study.
        The exit status is 1 when something without which nothing works is missing, or --endpoint does not answer.

        Examples:
          mkb-analyze doctor
          mkb-analyze doctor --endpoint http://127.0.0.1:8080/v1 --quick
        """
        return machine.examined(endpoint, study, quick)

    def completion(self, shell: str) -> Answer:
        """Print the script by which a shell completes verbs, options and names: bash, zsh or fish.

        Put `source <(mkb-analyze completion bash)` into ~/.bashrc, or the like for zsh; fish reads
        ~/.config/fish/completions/mkb-analyze.fish.

        Example:
          mkb-analyze completion bash
        """
        return machine.completed(Commands, shell)

    @staticmethod
    def overview() -> str:
        """The list of verbs with what each does, for `mkb-analyze --help`."""
        lines = [
            "mkb-analyze VERB [options]: whether a kernel agent's note helps or harms the next attempt, and why",
            "",
        ]
        for name, verb in vars(Commands).items():
            if name.startswith("_") or name == "overview":
                continue
            if inspect.isclass(verb):
                for inner, method in vars(verb).items():
                    if not inner.startswith("_"):
                        lines.append(f"  {(name + ' ' + inner).replace('_', '-'):18s} {_first(method)}")
            else:
                lines.append(f"  {name.replace('_', '-'):18s} {_first(verb)}")
        lines += [
            "",
            "`mkb-analyze VERB --help` shows a verb's options and an example. On every verb: --json, --quiet,",
            "--log-file FILE. Exit status: 0 done, 1 a negative verdict, 2 a mistake in what was asked, 130 stopped.",
        ]
        return "\n".join(lines)


setattr(Commands, "import", Import)


def _first(verb: Any) -> str:
    return inspect.cleandoc(verb.__doc__ or "").split("\n", 1)[0]
