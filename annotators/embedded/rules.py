"""The plain forms of fate, adherence and cause: similarity and written-out rules, a baseline with no network."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from annotators.embedded import cues
from annotators.rubric import Rubric, shipped

SAME_MATTER = 0.30  # similarity from which two claims speak of the same thing: chosen, not measured on labelled pairs
TRACE = 0.22  # similarity from which a piece of advice has left a trace in a kernel or note
FULL, SOME = 0.75, 0.20  # shares of advice with a trace from which adherence is full, and is any at all
NUMBER_BONUS = 0.15  # added when two claims share a figure

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_CODE_WORD = re.compile(r"[A-Za-z_][A-Za-z_]{2,}|\d+|[\u3400-\u9fff]{1,2}")
_HEDGE = re.compile(
    r"\b(?:may|might|could|can|perhaps|maybe|possibly|probably|likely|seems?|appears?|suggests?|sometimes|often|usually|"
    r"mostly|should|somewhat|in some cases|at least|for this|only for|only when|only at|if)\b"
    r"|可能|也许|大概|似乎|有时|一般|在.{0,12}时",
    re.I,
)
_WIDE = re.compile(
    r"\b(?:always|every|any|all|never|must|only way|optimal|best|in general|no point|nothing|impossible|necessary|"
    r"required)\b"
    r"|总是|任何|所有|必须|最优|最好|只能|不可能",
    re.I,
)
_DENIES = re.compile(
    r"\b(?:not|no longer|never|wrong|false|refuted|contrary|did ?n['’]?t|does ?n['’]?t|is ?n['’]?t|was ?n['’]?t|"
    r"turned out|disproved|slower|worse|lost|fails?|failed|after all|instead)\b"
    r"|并非|不成立|相反|推翻|其实|反而|没有用|慢了|失败",
    re.I,
)
_EVIDENCE = re.compile(
    r"\b(?:measured|profil\w+|timed|tested|verified|confirmed|ncu|nsys|pass(?:es|ed)?|checked)\b"
    r"|实测|测得|验证|通过"
)


class Fate(NamedTuple):
    """What became of a claim: the fate's id, which next claim says so (None when none does) and how alike they are."""

    fate: str
    index: int | None
    similarity: float


class Adherence(NamedTuple):
    """How far a plan was followed: the level's id and the share of advice with a trace (NaN without any advice)."""

    level: str
    share: float


class Cause(NamedTuple):
    """Why an attempt fell behind: cause, second cause or None, the rule that fired, and the quotations for it."""

    cause: str
    second: str | None
    reason: str
    note_quotation: str | None
    attempt_quotation: str | None


def _one(rubric: Rubric, role: str) -> str:
    return rubric.role(role)[0]


def _similarities(claim: str, others: Sequence[str]) -> np.ndarray:
    """TF-IDF cosine of character groups within words (3 to 5, Han 1 to 2), plus a bonus for shared figures."""
    texts = [claim, *others]
    if not others:
        return np.zeros(0)
    try:
        words = TfidfVectorizer(token_pattern=_CODE_WORD.pattern, sublinear_tf=True).fit_transform(texts)
        chars = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True).fit_transform(texts)
    except ValueError:  # nothing but punctuation
        return np.zeros(len(others))
    near = (
        0.5 * np.asarray((words[1:] @ words[0].T).todense()).ravel()
        + 0.5 * np.asarray((chars[1:] @ chars[0].T).todense()).ravel()
    )
    figures = set(_NUMBER.findall(claim))
    shared = np.array([bool(figures & set(_NUMBER.findall(o))) for o in others])
    return np.minimum(near + NUMBER_BONUS * shared * (near > 0.1), 1.0)


def _measured(text: str) -> bool:
    _, kinds = cues.numbers_named(text.lower())
    return bool({"ratio", "percent", "rate", "time", "error", "count"} & set(kinds)) or bool(_EVIDENCE.search(text))


def fate_of(claim: str, next_claims: Sequence[str], rubric: Rubric | None = None) -> Fate:
    """The fate of an unsupported claim among the claims of the next note.

    The most similar next claim decides. Under `SAME_MATTER` nothing speaks of it. Otherwise, first rule that fits:
    denial in one and not in the other, evidence where there was none, more hedges or less scope, fewer hedges or
    more scope, else the same. Fates are named by the roles of the fate rubric.
    """
    rubric = rubric or shipped("fate")
    near = _similarities(claim, next_claims)
    if not len(near) or near.max() < SAME_MATTER:
        return Fate(_one(rubric, "absent"), None, float(near.max()) if len(near) else 0.0)
    index = int(near.argmax())
    said = next_claims[index]
    if bool(_DENIES.search(said)) != bool(_DENIES.search(claim)):
        role = "contradicted"
    elif _measured(said) and not _measured(claim):
        role = "with_evidence"
    else:
        strength = (len(_WIDE.findall(said)) - len(_HEDGE.findall(said))) - (
            len(_WIDE.findall(claim)) - len(_HEDGE.findall(claim))
        )
        role = "same" if strength == 0 else "stronger" if strength > 0 else "weaker"
    return Fate(_one(rubric, role), index, float(near[index]))


def adherence_of(advice: Sequence[str], traces: Sequence[str], rubric: Rubric | None = None) -> Adherence:
    """How far a plan was followed: the share of `advice` claims that have a trace in `traces`.

    `traces` are what the conditioned attempt left: kernel, submissions, the claims of its own note. A piece of advice
    has a trace when half of its rarer words (those that not every other piece of advice has) stand in one of them,
    or when one of them is as similar as `TRACE`.
    """
    rubric = rubric or shipped("attribution")
    if not advice:
        return Adherence(_one(rubric, "adherence_nothing"), float("nan"))
    bags = [{w.lower() for w in _CODE_WORD.findall(t)} for t in traces]
    common = {
        w
        for w in set().union(*(set(_words(a)) for a in advice))
        if len(advice) > 2 and sum(w in _words(a) for a in advice) > len(advice) / 2
    }
    n_found = 0
    for text in advice:
        words = _words(text) - common
        shared = max((len(words & bag) / len(words) for bag in bags if words), default=0.0)
        if shared >= 0.5 or (shared > 0.2 and bool(len(traces)) and _similarities(text, traces).max() >= TRACE):
            n_found += 1
    share = n_found / len(advice)
    role = "adherence_all" if share >= FULL else "adherence_some" if share >= SOME else "adherence_nothing"
    return Adherence(_one(rubric, role), share)


_FILLER = frozenset(
    (
        "the",
        "and",
        "for",
        "with",
        "that",
        "this",
        "from",
        "into",
        "are",
        "was",
        "were",
        "has",
        "have",
        "had",
        "its",
        "not",
        "but",
        "one",
        "two",
        "each",
        "per",
        "use",
        "uses",
        "used",
        "when",
        "then",
        "than",
        "over",
        "under",
        "same",
        "more",
        "less",
        "can",
        "may",
        "will",
        "our",
        "you",
        "your",
        "them",
        "they",
        "their",
        "while",
        "where",
        "which",
        "what",
    )
)


def _words(text: str) -> set[str]:
    return {w for w in (x.lower() for x in _CODE_WORD.findall(text)) if len(w) > 1 and w not in _FILLER}


def cause_of(
    *,
    adherence: str,
    solo_correct: bool,
    conditioned_correct: bool,
    n_submissions: int,
    budget: int | None = None,
    timed_out: bool = False,
    last_error_kind: str | None = None,
    n_failed_submissions: int = 0,
    paired_ratio: float | None = None,
    noise: float = 0.05,
    last_improved: bool = False,
    closures: Sequence[str] = (),
    unverified: Sequence[str] = (),
    solo_traces: Sequence[str] = (),
    conditioned_traces: Sequence[str] = (),
    source_dsl_advice: Sequence[str] = (),
    rubric: Rubric | None = None,
) -> Cause:
    """The cause of a harmed transfer, by the first rule that fits.

    `adherence` is a level of the rubric's scale. `paired_ratio` is conditioned over solo speedup, None when either is
    wrong. `closures`, `unverified` and `source_dsl_advice` are claims of the source note that exclude something, that
    assert without evidence, and that are specific to the source DSL; `*_traces` are the texts of the two attempts.

    1. Conditioned and solo both right and within `noise`: nothing ties the loss to the note.
    2. Adherence none: own doing; out of budget or time if it ended on an error or still improving, broken code if it
       is wrong, else nothing ties.
    3. Conditioned is wrong, and most of its submissions failed on build errors while the note has source-DSL advice
       with a trace in it: the advice does not fit.
    4. Conditioned is wrong or ended on an error: ran out if time or submissions were spent, else broken code.
    5. It ran out of time or submissions while still improving: ran out.
    6. The note excludes something that the solo attempt did: not tried.
    7. An unverified claim of the note has a trace in the conditioned attempt: taken untested.
    8. Followed in full or in part and slower: not tried.
    """
    rubric = rubric or shipped("attribution")
    spent = timed_out or (budget is not None and n_submissions >= budget)
    follows = adherence not in rubric.role("adherence_nothing")
    attempt = _first_line(conditioned_traces)

    def told(role: str, reason: str, note: str | None = None, second: str | None = None) -> Cause:
        return Cause(_one(rubric, role), _one(rubric, second) if second else None, reason, note, attempt)

    if solo_correct and conditioned_correct and paired_ratio is not None and abs(paired_ratio - 1) <= noise:
        return told("nothing_ties", f"both right and {paired_ratio:.3f} apart, within {noise:.0%}")
    if not follows:
        if spent and (not conditioned_correct or last_improved):
            return told("ran_out", "the note was not used and the budget was spent")
        if not conditioned_correct:
            return told("broken_code", "the note was not used and the result is wrong")
        return told("nothing_ties", "the note was not used")
    foreign = _traced(source_dsl_advice, conditioned_traces)
    if not conditioned_correct:
        building = last_error_kind is not None and "compil" in last_error_kind.lower()
        if foreign and building and 2 * n_failed_submissions >= max(n_submissions, 1):
            return told("does_not_fit", "advice of the source DSL in use and most submissions did not build", foreign)
        taken = _traced(unverified, conditioned_traces)
        if spent:
            return told("ran_out", "wrong or unfinished when the budget was spent", taken, "broken_code")
        return told(
            "broken_code",
            f"plan followed, result wrong ({last_error_kind or 'no error named'})",
            taken,
            "taken_untested" if taken else None,
        )
    if spent and last_improved:
        return told("ran_out", "still improving when the budget was spent")
    excluded = _traced(closures, solo_traces)
    if excluded:
        return told("not_tried", "the note excludes what the solo attempt did", excluded)
    taken = _traced(unverified, conditioned_traces)
    if taken:
        return told("taken_untested", "an unverified claim of the note is in the attempt", taken, "not_tried")
    return told("not_tried", "plan followed and slower", _first_line(closures or unverified or source_dsl_advice))


def _traced(claims: Sequence[str], traces: Sequence[str]) -> str | None:
    """The claim that is best seen in the traces, if any is seen."""
    best, share = None, 0.34
    bags = [{w.lower() for w in _CODE_WORD.findall(t)} for t in traces]
    for claim in claims:
        words = _words(claim)
        seen = max((len(words & bag) / len(words) for bag in bags if words), default=0.0)
        if seen > share:
            best, share = claim, seen
    return best


def _first_line(texts: Sequence[str]) -> str | None:
    """The first line of at least three letters among some texts, letter for letter: what a rule can quote."""
    for text in texts:
        for line in text.splitlines():
            if len(line.strip()) >= 3 and line.strip()[0] not in "#/*":
                return line.strip()[:300]
    return None
