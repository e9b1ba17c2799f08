"""A study with hard text and two raters that split, and a person in a real browser."""

import os
import re
from pathlib import Path

import pytest

from annotators.claims import split
from annotators.records import Annotation, ClaimLabel, Rater
from annotators.rubric import shipped
from runner.study import Study

NOTE = (
    "# 笔记 🚀 on rmsnorm\r\n\r\n"
    "- One row is 4096 values of bf16 🧮, and there are 2048 rows.\r\n"
    "- 改成 128 位加载以后快了 1.4 倍 👩‍💻。\r\n"
    "- Warp specialisation gives the best cafe\u0301 overlap here 🔥.\r\n\r\n"
    "There is no point in tensor cores <b>for</b> this & that problem.\r\n"
)
RUBRIC = shipped("content")
PASSWORD = "a-long-password-1"
# What a test needs that speaks to a real server.
REAL = [
    pytest.mark.skipif(
        not os.environ.get("MKB_TEST_REVIEW"), reason="needs a Label Studio server: run make test-review"
    ),
    pytest.mark.timeout(900),
]


def study(folder: Path, n_notes: int = 1) -> Study:
    made = Study.create(folder, origin={"kind": "test"}, notes={})
    shas = [made.put_text("notes", NOTE.replace("2048", str(2048 + n))) for n in range(n_notes)]
    made.update_manifest(notes={f"{n}.md": sha for n, sha in enumerate(shas)})
    with made.writing():
        for name, shift in (("embedded", 0), ("openai:m", 1)):
            rater = Rater(kind="model", name=name, rubric_id=RUBRIC.id, rubric_sha256=RUBRIC.sha256)
            made.append(
                "annotations",
                [
                    Annotation(
                        note_sha256=sha,
                        rater=rater,
                        claims=tuple(
                            ClaimLabel(
                                start=c.start,
                                end=c.end,
                                label=RUBRIC.ids[n + shift * (n == 0)],
                                flags={"evidence": "measured", "dsl_specific": False},
                            )
                            for n, c in enumerate(split(made.note(sha)))
                        ),
                    )
                    for sha in shas
                ],
            )
    return made


def sign_up(url: str, invite: str, email: str, password: str) -> None:
    """Make an account through the invite link, as a reviewer does."""
    import httpx

    with httpx.Client(base_url=url, follow_redirects=True, timeout=60) as client:
        path = invite.removeprefix(url)
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', client.get(path).text)[1]
        done = client.post(
            path,
            data={
                "csrfmiddlewaretoken": token,
                "email": email,
                "password": password,
                "allow_newsletters": "false",
                "how_find_us": "other",
            },
            headers={"Referer": url + path},
        )
        assert done.status_code == 200, done.text[:500]


class Person:
    """Someone who is logged in and labels in chromium."""

    def __init__(self, browser, url: str, email: str, password: str):
        self.page = browser.new_context(viewport={"width": 1500, "height": 1000}).new_page()
        self.page.goto(f"{url}/user/login/")
        self.page.fill("[name=email]", email)
        self.page.fill("[name=password]", password)
        self.page.click("[type=submit]")
        self.page.wait_for_load_state("networkidle")

    def open(self, address: str) -> None:
        self.page.goto(address)
        self.page.wait_for_selector("[data-testid=bottombar-submit-button]", timeout=60_000)
        self.page.wait_for_timeout(1500)

    def spans(self) -> list[str]:
        """The text of every marked region, in the order of the page; pieces of one region are joined."""
        pieces = self.page.eval_on_selector_all(".htx-highlight", "xs => xs.map(x => [x.className, x.textContent])")
        return [text for _, text in pieces]

    def click_span(self, n: int) -> None:
        self.page.locator(".htx-highlight").nth(n).click()
        self.page.wait_for_timeout(400)

    def click_label(self, label: str) -> None:
        self.page.locator(".lsf-label", has_text=label).first.click()
        self.page.wait_for_timeout(400)

    def escape(self) -> None:
        self.page.keyboard.press("Escape")
        self.page.wait_for_timeout(300)

    def drag(self, words: str) -> None:
        """Mark a stretch of the text with the mouse."""
        box = self.page.evaluate(
            """words => {
            const root = document.querySelector('.lsf-htx-richtext') || document.querySelector('[class*=richtext]');
            const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
            for (let node; node = walk.nextNode();) {
                const at = node.data.indexOf(words);
                if (at < 0) continue;
                node.parentElement.scrollIntoView({block: 'center'});
                const range = document.createRange();
                range.setStart(node, at); range.setEnd(node, at + words.length);
                const r = [...range.getClientRects()];
                const a = r[0], b = r[r.length - 1];
                return [a.left + 0.5, a.top + a.height / 2, b.right - 0.5, b.top + b.height / 2];
            }
            return null;
        }""",
            words,
        )
        assert box, f"{words!r} does not stand on the page"
        mouse = self.page.mouse
        mouse.move(box[0], box[1])
        mouse.down()
        mouse.move((box[0] + box[2]) / 2, box[3], steps=4)
        mouse.move(box[2], box[3], steps=4)
        mouse.up()
        self.page.wait_for_timeout(500)

    def chosen(self) -> list[list[str]]:
        """The values that are set, question by question, in the order of the page."""
        return self.page.eval_on_selector_all(
            ".lsf-choices", "xs => xs.map(x => [...x.querySelectorAll('input:checked')].map(i => i.name))"
        )

    def choose(self, question: int, value: str) -> None:
        """Answer one question, counted from the top of the page."""
        self.page.locator(".lsf-choices").nth(question).locator(f"label:has(input[name={value}])").click()
        self.page.wait_for_timeout(200)

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.page.wait_for_timeout(300)

    def comment(self, words: str) -> None:
        self.page.locator("textarea").last.fill(words)

    def submit(self) -> None:
        self.page.click("[data-testid=bottombar-submit-button]")
        self.page.wait_for_timeout(2500)


def transfers_study(folder: Path) -> Study:
    """The recorded attempts with two raters who split on every cause and on every fate."""
    import shutil

    from annotators import panel, views
    from annotators.claims import split as claims_of
    from annotators.records import Attribution, Fate

    shutil.copytree(Path(__file__).resolve().parents[3] / "examples" / "study", folder)
    made = Study(folder)
    causes, fates = shipped("attribution"), shipped("fate")
    with made.writing():
        for name, shift in (("embedded", 0), ("openai:m", 1)):
            about = lambda r, n=name: Rater(kind="model", name=n, rubric_id=r.id, rubric_sha256=r.sha256)  # noqa: E731
            for n, triple in enumerate(panel.attributable(made)):
                ref = views.ref_of(triple)
                made.append(
                    "attributions",
                    Attribution(
                        transfer=ref,
                        rater=about(causes),
                        cause=causes.ids[(n + shift) % len(causes.ids)],
                        adherence=causes.scales[0].ids[0],
                    ),
                )
                claim = claims_of(made.note(ref.source_note_sha256))[0]
                if ref.own_note_sha256:
                    made.append(
                        "fates",
                        Fate(
                            transfer=ref,
                            note_sha256=ref.source_note_sha256,
                            start=claim.start,
                            end=claim.end,
                            next_note_sha256=ref.own_note_sha256,
                            rater=about(fates),
                            fate=fates.ids[(n + shift) % len(fates.ids)],
                        ),
                    )
    return made
