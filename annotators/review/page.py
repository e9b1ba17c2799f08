"""Makes the labelling page of a task out of its rubric, and reads nothing else."""

from xml.etree import ElementTree as xml

from annotators.rubric import Rubric

FLAG = "flag_"
COMMENT = "comment"
# Escape, Space and Enter belong to the page; the rest goes to labels first and then to flags.
KEYS = "1234567890qwertasdfgzxcvbyuiophjklnm"
TEXTS = {
    "content": (("text", "The note"),),
    "attribution": (
        ("facts", "The attempts"),
        ("solo_verdict", "Solo verdict"),
        ("conditioned_verdict", "Conditioned verdict"),
        ("note", "The note it was given"),
        ("solo", "Solo kernel"),
        ("conditioned", "Conditioned kernel"),
        ("solo_submissions", "Solo submissions"),
        ("submissions", "Conditioned submissions"),
        ("own_note", "The note it left"),
    ),
    "fate": (
        ("claim", "The claim"),
        ("candidates", "Nearest sentences of the next note"),
        ("next_note", "The next note"),
    ),
}
_CODES = ("solo", "conditioned", "solo_submissions", "submissions")
_STYLE = ".code * { font-family: monospace !important; font-size: 13px; line-height: 1.4; }"
_PAIRS = (("solo_verdict", "conditioned_verdict"), ("solo", "conditioned"), ("solo_submissions", "submissions"))


def page(rubric: Rubric) -> str:
    """The page as XML: texts, labels with their definitions, flags a region, scales, a comment box, hotkeys.

    Raises:
        KeyError: a task that has no page (none of `TEXTS`).
    """
    root = xml.Element("View")
    texts = TEXTS[rubric.task]
    keys = iter(KEYS)
    xml.SubElement(root, "Style").text = _STYLE
    _definitions(root, rubric)
    titles = dict(texts)
    if rubric.task == "content":
        labels = xml.SubElement(root, "Labels", name="label", toName="text", showInline="true")
        for id in rubric.answers:
            xml.SubElement(labels, "Label", value=id, hint=_plain(_meaning(rubric, id)), **_key(keys))
        _text(root, "text", titles["text"])
        for flag in rubric.flags:
            _choices(
                root, FLAG + flag.id, "text", flag.is_, [(v.id, v.is_) for v in flag.values], keys, perRegion="true"
            )
    else:
        done: set[str] = set()
        for name, title in texts:
            pair = next((p for p in _PAIRS if name in p), None)
            if name in done:
                continue
            if pair:
                row = xml.SubElement(root, "View", style="display:flex;gap:1em;align-items:flex-start")
                for half in pair:
                    looks = {"className": "code"} if half in _CODES else {}
                    _text(
                        xml.SubElement(row, "View", style="flex:1;min-width:0;max-height:36em;overflow:auto", **looks),
                        half,
                        titles[half],
                    )
                done.update(pair)
            else:
                _text(xml.SubElement(root, "View", style="max-height:28em;overflow:auto"), name, title)
        first = texts[0][0]
        labels = [(id, _meaning(rubric, id)) for id in rubric.answers]
        what = "cause" if rubric.task == "attribution" else rubric.task
        needed = {"required": "true"} if rubric.task == "fate" else {}
        _choices(root, what, first, rubric.title, labels, keys, **needed)
        if rubric.task == "attribution":
            _choices(root, "second_cause", first, "A second cause, where there is one", labels, keys)
        for scale in rubric.scales:
            _choices(root, scale.id, first, scale.is_, [(v.id, v.is_) for v in scale.values], keys, required="true")
    xml.SubElement(root, "Header", size="5", value="Comment")
    xml.SubElement(
        root,
        "TextArea",
        name=COMMENT,
        toName=texts[0][0],
        rows="2",
        maxSubmissions="1",
        editable="true",
        placeholder="What was hard to decide, if anything",
    )
    xml.indent(root)
    return xml.tostring(root, encoding="unicode")


def _definitions(root: xml.Element, rubric: Rubric) -> None:
    panel = xml.SubElement(
        xml.SubElement(root, "Collapse", bordered="true", open="false"), "Panel", value="Definitions and rules"
    )
    for line in (rubric.unit, *(f"{x.id}: {x.is_} Not: {x.is_not}" for x in rubric.labels), *rubric.rules):
        xml.SubElement(panel, "Header", size="6", value=_plain(line))


def _text(parent: xml.Element, name: str, title: str) -> None:
    xml.SubElement(parent, "Header", size="5", value=title)
    xml.SubElement(parent, "Text", name=name, value=f"${name}", valueType="text", granularity="symbol")


def _choices(
    parent: xml.Element, name: str, to: str, title: str, values: list[tuple[str, str]], keys, **more: str
) -> None:
    box = xml.SubElement(parent, "View", **({"visibleWhen": "region-selected"} if "perRegion" in more else {}))
    xml.SubElement(box, "Header", size="6", value=_plain(title))
    choices = xml.SubElement(box, "Choices", name=name, toName=to, choice="single-radio", showInline="true", **more)
    for id, meaning in values:
        xml.SubElement(choices, "Choice", value=id, hint=_plain(meaning), **_key(keys))


def _key(keys) -> dict[str, str]:
    key = next(keys, None)
    return {"hotkey": key} if key else {}


def _meaning(rubric: Rubric, id: str) -> str:
    return "carries no category" if id == rubric.none_label else rubric.label(id).is_


def _plain(text: str) -> str:
    # A dollar sign would be read as the name of a field of the task.
    return " ".join(text.split()).replace("$", "＄")
