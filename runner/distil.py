"""The one standard request that distils a note from an attempt which wrote none, or K notes for the variance table."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.agent_prompts import DISTIL_SYSTEM, verdict_text
from runner.catalogue import Problem
from runner.chat import Chat, Message
from runner.fence import code_for, fenced
from runner.records import Submission

TEMPERATURE = 0.3
MAX_OUTPUT_TOKENS = 8_192
MAX_KERNEL_CHARS = 14_000
MAX_TEXT_CHARS = 24_000


@dataclass(frozen=True)
class Account:
    """What is known of an attempt when its note is distilled."""

    problem: Problem
    dsl: str
    note: str | None
    submissions: Sequence[Submission]
    kernels: dict[str, str]
    said: Sequence[str]


def request(account: Account, seed: int) -> Chat:
    """The request for one note; it depends on the attempt's own texts and the seed alone."""
    texts = [("problem", account.problem.statement())]
    if account.note is not None:
        texts.append(("note given to this attempt", cut(account.note, MAX_TEXT_CHARS)))
    for s in account.submissions:
        if s.kernel_sha256 in account.kernels:
            texts.append((f"kernel of submission {s.index}", cut(account.kernels[s.kernel_sha256], MAX_KERNEL_CHARS)))
        if s.verdict is not None:
            texts.append((f"verdict of submission {s.index}", verdict_text(s.verdict)))
    texts.append(("what the agent said", cut("\n\n".join(account.said), MAX_TEXT_CHARS)))
    code = code_for(*(text for _, text in texts))
    user = f"The code of this message is {code}.\nThe attempt was made in {account.dsl}.\n\n" + "\n\n".join(
        fenced(code, name, text) for name, text in texts
    )
    return Chat((Message("system", DISTIL_SYSTEM), Message("user", user)), (), MAX_OUTPUT_TOKENS, seed, TEMPERATURE)


def cut(text: str, n: int) -> str:
    """The text, or its first three fifths and its end where it is longer than n characters."""
    if len(text) <= n:
        return text
    head = n * 3 // 5
    return f"{text[:head]}\n[… {len(text) - n} characters left out …]\n{text[len(text) - (n - head) :]}"
