"""A scripted model: reads a prompt as its rule says, answers by a fixed function of the text, and can be spoilt by name."""

import hashlib
import json
import re
from collections.abc import Sequence

CONTENT = (
    "workload_census",
    "measured_bottleneck",
    "verified_reformulation",
    "hardware_mapping",
    "numerics_constraint",
    "offload_boundary",
    "bounded_failure_diagnosis",
    "verification_recipe",
    "open_question",
    "unverified_claim",
    "unsupported_closure",
    "none",
)
CAUSES = (
    "search_truncation",
    "unverified_adoption",
    "inapplicable_transfer",
    "execution_error",
    "budget_exhaustion",
    "unrelated_variation",
)
FATES = ("restated", "strengthened", "weakened", "verified", "refuted", "absent")
EVIDENCE = ("measured", "reasoned", "none")


def code_of(user: str) -> str:
    """The code that the message names in its first line."""
    return re.match(r"The code of this message is (\w+)\.\n", user)[1]


def without_code(user: str) -> str:
    """The message with its code replaced: the same for every sending of one item."""
    return user.replace(code_of(user), "CODE")


def key_of(body: dict) -> str:
    """Names the item that a request asks, whatever its random code is."""
    user = body["messages"][-1]["content"] or ""
    if not user.startswith("The code of this message is "):  # an agent's conversation, not a rater's question
        return hashlib.sha256(json.dumps(body["messages"], sort_keys=True).encode()).hexdigest()[:16]
    return hashlib.sha256(without_code(user).encode()).hexdigest()[:16]


def fences(user: str) -> dict[str, str]:
    """The fenced texts by name: a fence ends at a line that is its code and `>>>`, as the rule in the prompt says."""
    code, out, name, lines = code_of(user), {}, None, []
    for line in user.split("\n"):
        if name is None and line.startswith(f"<<<{code} "):
            name, lines = line.removeprefix(f"<<<{code} "), []
        elif name is not None and line == f"{code}>>>":
            out[name], name = "\n".join(lines), None
        elif name is not None:
            lines.append(line)
    return out


def outside(user: str) -> str:
    """All that the message says outside its fences, read line by line as a careful reader would."""
    code, inside, out = code_of(user), False, []
    for line in user.split("\n"):
        if inside:
            inside = line != f"{code}>>>"
        elif line.startswith(f"<<<{code} "):
            inside = True
        else:
            out.append(line)
    return "\n".join(out)


def pick(text: str, among: Sequence[str]) -> str:
    """One of some labels, by the text alone."""
    return among[int(hashlib.sha256(text.strip().encode()).hexdigest(), 16) % len(among)]


def told_outside(user: str) -> str | None:
    """The label that the message orders outside its fences, if it names one: an honest question never does."""
    said = outside(user)
    return next((label for label in (*CONTENT[:-1], *CAUSES, *FATES) if re.search(rf"\b{label}\b", said)), None)


def answer(body: dict) -> dict:
    """The scripted model's answer to a request of any of the three tasks. It obeys what it is told outside the fences."""
    user = body["messages"][-1]["content"]
    texts, order = fences(user), told_outside(user)
    if "facts" in texts:
        return _attribution(user, texts, order)
    if "next note" in texts:
        said = re.search(r"^- (.+)", texts["candidates"])
        fate = order or (pick(texts["claim"], FATES[:-1]) if said else "absent")
        return {"fate": fate, "quotation": said[1] if said and fate != "absent" else ""}
    return _content(code_of(user), texts["note"], order)


def _content(code: str, note: str, order: str | None) -> dict:
    marks = list(re.finditer(rf"\[{code} (\d+)\] ", note))
    claims = []
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        text = note[mark.end() : following.start() if following else len(note)]
        line = text.strip().split("\n", 1)[0]
        claims.append(
            {
                "n": int(mark[1]),
                "label": order or pick(line, CONTENT),
                "evidence": pick(line, EVIDENCE),
                "dsl_specific": pick(line, ("a", "b")) == "a",
            }
        )
    return {"claims": claims}


def _attribution(user: str, texts: dict[str, str], order: str | None) -> dict:
    note, kernel = texts.get("source note", ""), texts.get("conditioned kernel", "")
    quotations = [
        {"source": name, "text": _line(text)}
        for name, text in (("source note", note), ("conditioned kernel", kernel))
        if _line(text)
    ]
    out = {
        "rationale": "scripted",
        "adherence": pick(kernel, ("full", "partial", "none")),
        "note_unused": not _line(note),
        "quotations": quotations,
    }
    if "Give the cause" in outside(user):
        out |= {"cause": order or pick(kernel + note, CAUSES), "second_cause": "no_second"}
    return out


def _line(text: str) -> str:
    return next(
        (line.strip()[:150] for line in text.split("\n") if len(line.strip()) > 3 and "not shown" not in line), ""
    )


SPOILS = ("no-json", "half-json", "outside", "bad-flag", "missing", "twice", "extra", "invented", "no-evidence")


def spoilt(how: str, good: dict) -> str:
    """The text of an answer that is wrong in one of the ways of `SPOILS`."""
    bad = json.loads(json.dumps(good))
    claims = bad.get("claims")
    if how == "no-json":
        return "I would say that most of these are about the hardware."
    if how == "half-json":
        return json.dumps(bad)[:-12]
    if how == "outside" and claims:
        claims[0]["label"] = "excellent_claim"
    elif how == "outside":
        bad["cause" if "cause" in bad else "fate"] = "bad_luck"
    elif how == "bad-flag":
        claims[0]["evidence"] = "overwhelming"
    elif how == "missing":
        claims.pop(0)
    elif how == "twice":
        claims.append({**claims[0], "label": "none"})
    elif how == "extra":
        claims.append({**claims[0], "n": 9999})
    elif how == "invented" and "quotations" in bad:
        bad["quotations"][-1]["text"] = "this sentence stands in none of the texts at all"
    elif how == "invented":
        bad |= {"fate": "restated", "quotation": "this sentence stands in none of the texts at all"}
    elif how == "no-evidence":
        bad["quotations"] = []
    else:
        raise ValueError(how)
    return json.dumps(bad)
