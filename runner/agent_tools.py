"""What an agent's tools do: each call becomes the answer that the model reads and the event that the journal keeps."""

import asyncio
from collections.abc import Callable
from typing import Any

from runner import agent_prompts as prompts
from runner import contract, digests
from runner.agent_state import AttemptState
from runner.chat import Call
from runner.dsl_docs import Docs
from runner.execute import Task
from runner.records import Stage, Submission, Verdict

MAX_NOTE_CHARS = 60_000
MAX_GIVEN_BACK = 20  # submissions that never reached evaluation, after which they count


class Bench:
    """The tools of one attempt."""

    def __init__(self, task: Task, docs: Docs | None, device: str, settings: Any):
        self.task, self.docs, self.device, self.settings = task, docs, device, settings
        self.size = "full" if device == "cuda" else "small"

    async def answer(self, call: Call, state: AttemptState, clock_s: Callable[[], float]) -> dict[str, Any]:
        """The fields of the call's `answer` event: `text` for the model, and what the call changes."""
        arguments = call.parsed()
        if call.name not in prompts.NAMES:
            told = {"text": f"{call.name[:60]}: no such tool; there are {', '.join(prompts.NAMES)}."}
        elif arguments is None:
            told = {"text": f"The arguments of {call.name} are no JSON object; nothing was done. Send them again."}
        elif state.finished:
            told = {"text": "The attempt has ended; nothing was done."}
        else:
            told = await getattr(self, f"_{call.name}")(arguments, state, clock_s)
        left = self.settings.max_submissions - state.n_counted
        if told.get("submission"):
            left -= told["submission"]["counted"]
        minutes = (clock_s() - told.get("waited_s", 0.0)) / 60
        told["text"] += f"\n\n[{minutes:.1f} of {self.settings.budget_minutes:g} minutes used; {left} submissions left]"
        return told

    async def _read_problem(self, arguments: dict, state: AttemptState, clock_s: Callable) -> dict[str, Any]:
        problem = self.task.problem
        rules = prompts.contract_text(problem, self.task.order.dsl, self.device, self.size)
        return {"text": f"{problem.statement()}\n\nContract\n{rules}"}

    async def _search_docs(self, arguments: dict, state: AttemptState, clock_s: Callable) -> dict[str, Any]:
        query = arguments.get("query") or arguments.get("text")
        if not isinstance(query, str) or not query.strip():
            return {"text": "search_docs: `query` is missing; give a few words."}
        if self.docs is None:
            return {"text": "There is no documentation here."}
        return {"text": await asyncio.to_thread(self.docs.search, query[:400])}

    async def _write_note(self, arguments: dict, state: AttemptState, clock_s: Callable) -> dict[str, Any]:
        text = arguments.get("text")
        if not isinstance(text, str) or not text.strip():
            return {"text": "write_note: `text` is missing or empty; nothing was kept."}
        if len(text) > MAX_NOTE_CHARS:
            return {
                "text": f"write_note: {len(text):,} characters, {MAX_NOTE_CHARS:,} are the limit; nothing was kept."
            }
        return {"text": f"Kept: {len(text):,} characters.", "note": text}

    async def _finish(self, arguments: dict, state: AttemptState, clock_s: Callable) -> dict[str, Any]:
        chosen = arguments.get("submission")
        there = [s.index for s in state.submissions if s.kernel_sha256 is not None]
        if chosen is not None and chosen not in there:
            named = ", ".join(map(str, there)) or "none"
            return {"text": f"finish: no submission {str(chosen)[:20]} that could be graded; there are: {named}."}
        return {"text": "The attempt has ended.", "finish": True, "chosen": chosen}

    async def _submit(self, arguments: dict, state: AttemptState, clock_s: Callable) -> dict[str, Any]:
        kernel = arguments.get("kernel") or arguments.get("text")
        if not isinstance(kernel, str) or not kernel.strip():
            return {"text": "submit: `kernel` is missing; give the whole text of kernel.py. This did not count."}
        if state.n_counted >= self.settings.max_submissions:
            return {"text": "No submissions are left. Write the note and call finish."}
        index, at_s = len(state.submissions) + 1, round(clock_s(), 3)
        if (fault := _unreadable(kernel)) is not None:
            verdict = Verdict(passed=False, stage=Stage.LOAD, reason=fault)
            return self._submitted(Submission(index=index, at_s=at_s, counted=self._counts(state), verdict=verdict), {})
        graded = await self.task.evaluate(kernel)
        reached = not getattr(graded.verdict, "infrastructure", False)
        submission = Submission(
            index=index,
            at_s=at_s,
            counted=reached or self._counts(state),
            kernel_sha256=digests.of_text(kernel),
            verdict=graded.verdict,
        )
        return self._submitted(submission, {"kernel": kernel, "waited_s": graded.waited_s})

    @staticmethod
    def _counts(state: AttemptState) -> bool:
        """Whether a submission that never reached evaluation counts all the same: endless ones must end."""
        return sum(not s.counted for s in state.submissions) >= MAX_GIVEN_BACK

    @staticmethod
    def _submitted(submission: Submission, told: dict[str, Any]) -> dict[str, Any]:
        text = f"Submission {submission.index}\n{prompts.verdict_text(submission.verdict)}"
        if not submission.counted:
            text += "\nIt never reached evaluation and is given back."
        return {"text": text, "submission": submission.line(), **told}


def _unreadable(kernel: str) -> str | None:
    try:
        n_bytes = len(kernel.encode("utf-8"))
    except UnicodeEncodeError:
        return "unreadable: not UTF-8 text"
    if n_bytes > contract.MAX_KERNEL_BYTES:
        return f"oversized: {n_bytes:,} bytes, {contract.MAX_KERNEL_BYTES:,} are the limit"
    return None
