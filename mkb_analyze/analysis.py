"""One study analysed: transfers, labels, tables and the sentences that the report opens with, each made once."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from annotators import rubric as rubrics
from annotators.calibrate import Calibration
from annotators.records import Annotation
from mkb_analyze import labels as labelling
from mkb_analyze import transfers as tr
from mkb_analyze.labels import Labels
from mkb_analyze.table import Table, one
from mkb_analyze.tables import agreement, attribution, beyond, content, cost, outcomes, quality
from mkb_analyze.tables.groups import Resampling, by, direction_name, harmed, helped, lift, share
from mkb_analyze.transfers import Settings, Transfer
from runner.errors import UserError
from runner.records import Attempt
from runner.study import Study

ALARM_HARM_RATE = 0.10
FEW = 5
# A cluster bootstrap of fewer problems than this is known to be too short; the report claims nothing from it.
FEW_PROBLEMS = 10


@dataclass
class Analysis:
    """Everything a report shows of one study; tables are made when first asked for."""

    study: Study
    settings: Settings
    labels: Labels
    attempts: list[Attempt]
    transfers: list[Transfer]
    how: Resampling
    study_digest: str
    seed: int
    calibration: Calibration | None = None
    _rubrics: dict[str, rubrics.Rubric] = field(default_factory=dict, repr=False)

    def rubric(self, task: str) -> rubrics.Rubric:
        """The rubric in force for a task (`content`, `attribution`, `fate`)."""
        if task not in self._rubrics:
            self._rubrics[task] = rubrics.load(task)
        return self._rubrics[task]

    @cached_property
    def resolved(self) -> list[Transfer]:
        return [t for t in self.transfers if t.resolved]

    @cached_property
    def models(self) -> list[str]:
        return sorted({a.model for a in self.attempts})

    @cached_property
    def by_name(self) -> dict[str, Table]:
        """Every table of the study by name."""
        resolved, how = self.resolved, self.how
        c, a, f = (self.rubric(t) for t in ("content", "attribution", "fate"))
        shas = sorted(
            {s for x in self.attempts for s in (x.note_sha256, x.source_note_sha256) if s} | set(self.labels.notes)
        )
        made = [
            outcomes.outcomes(resolved, how),
            outcomes.by_family(resolved, how),
            outcomes.standing(resolved, how),
            outcomes.reverse(resolved, how),
            outcomes.attainment(resolved),
            outcomes.attempt_rows(self.attempts, self.settings),
            content.profile(self.labels, c, shas),
            content.association(resolved, self.labels, c, how),
            attribution.causes(resolved, self.labels, a, how),
            attribution.adherence(resolved, self.labels, a, how),
            attribution.propagation(resolved, self.labels, c, f, how),
            attribution.fate_counts(self.labels, f),
            beyond.corrected(resolved, self.labels, c, self.calibration, how),
            beyond.transfer_rule(resolved, self.labels, c, a, how),
            beyond.generations(self.transfers, self.labels, f, how),
            agreement.agreement(self.labels, c, a, f, how),
            agreement.doubtful(self.labels),
            cost.raters(self.labels),
            cost.attempts(self.attempts),
            quality.noise(self.attempts, self.settings, how),
            quality.sensitivity(self.attempts, self.settings, how),
            quality.issues(self.study, self.attempts, self.transfers, self.labels, (c, a, f)),
        ]
        named = {t.name: t for t in made}
        named["variance"] = beyond.variance_parts(resolved, named["noise"].rows, how)
        return named

    def tables(self) -> Iterator[Table]:
        yield from self.by_name.values()
        yield outcomes.transfer_rows(self.transfers, {})

    def table(self, name: str) -> Table:
        """One table by name; UserError lists the names."""
        found = {t.name: t for t in self.tables()}
        if name not in found:
            raise UserError(f"{name!r}: no such table; one of {', '.join(sorted(found))}")
        return found[name]

    @cached_property
    def scope(self) -> str:
        """The sentence that says within what the results hold."""
        dsls = sorted({t.direction.replace("2", " → ", 1) for t in self.transfers}) or ["no transfer"]
        devices = sorted(
            {a.device or (a.verdict.device if a.verdict and a.verdict.device else "") for a in self.attempts} - {""}
        )
        n_problems = len({a.problem for a in self.attempts})
        return (
            f"These results hold for {', '.join(dsls)}, on {', '.join(devices) or 'a device that the study does not name'}, "
            f"for the {plural(len(self.models), 'model')} {', '.join(self.models) or '–'} and the {plural(n_problems, 'problem')} of this study, and no further."
        )

    @cached_property
    def findings(self) -> list[str]:
        """Three sentences from the numbers, with their intervals; what is too small to say is said."""
        resolved = self.resolved
        if not resolved:
            return [
                "No transfer is resolved yet: each needs a source solo, a target solo and a conditioned attempt with a verdict.",
                f"{plural(len(self.attempts), 'attempt')} and {plural(len(self.labels.notes), 'annotated note')} are here.",
            ]
        k_help, k_harm, n = sum(map(helped, resolved)), sum(map(harmed, resolved)), len(resolved)
        value = lift(resolved, "paired lift", self.how)
        few = f" With {n} transfers these figures are marks, not findings." if n < 30 else ""
        harm = share(resolved, harmed, "harm rate", self.how)
        first = (
            f"The note helped in {k_help} and harmed in {k_harm} of {plural(n, 'resolved transfer')} "
            f"(harm rate {one(harm.estimate, 'share')} [{one(harm.low, 'share')}, {one(harm.high, 'share')}])."
        )
        change = (
            "not distinguishable from 0"
            if value.low != value.low or value.low <= 0 <= value.high
            else "different from 0"
        )
        n_problems = len({t.problem for t in resolved})
        if n_problems < FEW_PROBLEMS:
            change = f"from {plural(n_problems, 'problem')}, too few to tell it from 0"
        interval = (
            f" [{one(value.low, 'percent')}, {one(value.high, 'percent')}]"
            if value.low == value.low
            else f" ({value.reason})"
        )
        second = f"Paired lift is {one(value.estimate, 'percent')}{interval}, {change}{'' if n_problems < FEW_PROBLEMS else f' at the {100 * value.level:g}% level'}.{few}"
        return [first, second, self._standing_sentence()]

    def _standing_sentence(self) -> str:
        parts = []
        for standing, group in by(self.resolved, lambda t: t.standing.value).items():
            parts.append(
                f"{standing}: {sum(map(helped, group))} helped, {sum(map(harmed, group))} harmed of {len(group)}"
            )
        return "By the source's standing against the target solo – " + "; ".join(parts) + "."

    @cached_property
    def harmed_groups(self) -> list[tuple[str, str, int, list[Transfer]]]:
        """(model, direction, n, harmed transfers) of every group whose harm rate is over the limit."""
        out = []
        for (model, direction), group in by(self.resolved, lambda t: (t.model, direction_name(t))).items():
            bad = [t for t in group if harmed(t)]
            if len(bad) / len(group) > ALARM_HARM_RATE:
                out.append((model, direction, len(group), bad))
        return out

    @cached_property
    def alarms(self) -> list[str]:
        """Groups over the harm limit with the problems to review, and what a reader must not overlook."""
        return [
            f"{model}, {direction}: harmed in {len(bad)} of {n} (over {ALARM_HARM_RATE:.0%}); review problems "
            f"{', '.join(str(p) for p in sorted({t.problem for t in bad}))}."
            for model, direction, n, bad in self.harmed_groups
        ] + self.warnings

    @cached_property
    def warnings(self) -> list[str]:
        """What a reader must not overlook beside the groups that were harmed."""
        out = []
        unclear = [r["attempt"] for r in self.by_name["noise"].rows if r["clear"] == "no"]
        if unclear:
            out.append(
                f"Timing noise reaches the neutral band for {plural(len(unclear), 'attempt')} ({', '.join(unclear[:6])}): "
                f"there, help and harm cannot be told from noise."
            )
        if self.resolved and len(self.resolved) < FEW:
            out.append(f"Only {len(self.resolved)} transfers are resolved: nothing here is more than a mark.")
        return out


def plural(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def analyse(
    study: Study,
    *,
    settings: Settings = Settings(),
    which: str = "panel",
    seed: int = 0,
    n_resamples: int = 2000,
    calibration: Calibration | None = None,
) -> Analysis:
    """Read a study and prepare its analysis.

    Args:
        which: the labels that count, `panel`, `gold` or `rater:NAME`.
        calibration: a rater's confusion against gold, for corrected rates; it must be that of the rater whose labels
            count, with the same rubric and prompt.

    Raises:
        UserError: an unknown choice of labels, or a calibration of another rater, rubric or prompt.
    """
    attempts = study.attempts()
    if calibration is not None:
        _refuse_other(study, calibration, which)
    return Analysis(
        study,
        settings,
        labelling.load(study, which),
        attempts,
        tr.build(attempts, settings),
        Resampling(n_resamples, seed),
        study.digest(),
        seed,
        calibration,
    )


def _refuse_other(study: Study, calibration: Calibration, which: str) -> None:
    """A calibration speaks of one rater: every content label that counts must be that rater's."""
    n_checked = 0
    for record in study.read("annotations", Annotation):
        if which.startswith("rater:") and labelling.rater_name(record.rater) != which.removeprefix("rater:"):
            continue
        calibration.check(record.rater)
        n_checked += 1
    if not n_checked:
        raise UserError(f"--calibration: no label of this study is by {calibration.rater.name}; annotate with it first")
