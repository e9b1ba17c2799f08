"""What an attempt has come to, folded from its journal's events: the same whether they happen now or are read back."""

from dataclasses import dataclass, field
from typing import Any

from runner.chat import Call, Message
from runner.fence import showable
from runner.records import Submission, Usage, Verdict

_USED = ("n_requests", "n_input_tokens", "n_cached_tokens", "n_output_tokens", "cost_usd")


@dataclass
class AttemptState:
    """Messages, submissions, note and clock of one attempt; changed by `apply` alone."""

    messages: list[Message]
    clock_s: float = 0.0
    waited_s: float = 0.0
    submissions: list[Submission] = field(default_factory=list)
    kernels: dict[str, str] = field(default_factory=dict)
    note: str | None = None
    chosen: int | None = None
    finished: bool = False
    ended: str | None = None
    n_replies: int = 0
    n_bare: int = 0
    distilled: list[str] = field(default_factory=list)
    undistilled: list[str] = field(default_factory=list)
    final: Verdict | None = None
    served_model: str | None = None
    _used: dict[str, float] = field(default_factory=dict)

    def apply(self, event: dict[str, Any]) -> None:
        """Take one event in."""
        self.clock_s = max(self.clock_s, event.get("at_s", 0.0))
        self.waited_s += event.get("waited_s", 0.0)
        for name in _USED:
            if (value := (event.get("usage") or {}).get(name)) is not None:
                self._used[name] = self._used.get(name, 0) + value
        self.served_model = event.get("served_model") or self.served_model
        getattr(self, f"_{event['event']}", lambda e: None)(event)

    def _reply(self, event: dict[str, Any]) -> None:
        calls = tuple(Call(*c) for c in event["calls"])
        self.messages.append(Message("assistant", showable(event["text"]), calls))
        self.n_replies += 1
        self.n_bare = 0 if calls else self.n_bare + 1

    def _answer(self, event: dict[str, Any]) -> None:
        if (told := event.get("submission")) is not None:
            submission = Submission.model_validate(told)
            self.submissions.append(submission)
            if submission.kernel_sha256 is not None:
                self.kernels[submission.kernel_sha256] = event["kernel"]
        self.note = event.get("note", self.note)
        if event.get("finish"):
            self.finished, self.chosen = True, event.get("chosen")
        self.messages.append(Message("tool", showable(event["text"]), answers=event["call"]))

    def _nudge(self, event: dict[str, Any]) -> None:
        self.messages.append(Message("user", event["text"]))

    def _end(self, event: dict[str, Any]) -> None:
        self.ended = event["why"]

    def _distilled(self, event: dict[str, Any]) -> None:
        (self.distilled if event["text"] is not None else self.undistilled).append(event["text"] or event["why"])

    def _final(self, event: dict[str, Any]) -> None:
        self.final = Verdict.model_validate(event["verdict"])

    def unanswered(self) -> list[Call]:
        """Calls of the last reply that have no answer yet."""
        last = next((i for i in reversed(range(len(self.messages))) if self.messages[i].role == "assistant"), None)
        if last is None:
            return []
        done = {m.answers for m in self.messages[last + 1 :]}
        return [c for c in self.messages[last].calls if c.id not in done]

    @property
    def n_counted(self) -> int:
        return sum(s.counted for s in self.submissions)

    @property
    def final_kernel(self) -> str | None:
        """The kernel to grade at the end: the submission that the agent named, else the last that has a text."""
        graded = [s for s in self.submissions if s.kernel_sha256 is not None]
        named = [s for s in graded if s.index == self.chosen]
        last = (named or graded)[-1:]
        return self.kernels[last[0].kernel_sha256] if last else None

    @property
    def said(self) -> list[str]:
        """What the agent said beside its calls."""
        return [m.text for m in self.messages if m.role == "assistant" and m.text.strip()]

    def usage(self) -> Usage:
        """Everything that the attempt's requests used, and the seconds of its clock."""
        used = {name: self._used.get(name) for name in _USED}
        return Usage(
            **{k: int(v) if v is not None and k != "cost_usd" else v for k, v in used.items()}, agent_s=self.clock_s
        )
