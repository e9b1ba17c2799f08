"""An agent that makes no attempt of its own: kernels and notes on disk are graded in the attempt's place."""

import asyncio
from pathlib import Path

from runner import digests
from runner.catalogue import Problem
from runner.errors import UserError
from runner.execute import Task, Unavailable, Work
from runner.plan import Order
from runner.records import State, Submission, Verdict
from runner.replay import Folder, Verdicts, folders


class ReplayAgent:
    """Attempts from a folder laid out as `runner/replay.py` says; `verdicts.jsonl` there saves grading again.

    Raises:
        UserError: there is no such folder, or it holds no attempt.
    """

    name = "replay"

    def __init__(self, root: Path | str):
        self.root = Path(root)
        if not self.root.is_dir():
            raise UserError(f"--agent replay:{root}: no such folder; give a folder of attempts")
        self._folders = {(f.model, f.problem, f.replicate, f.dsl, f.source_dsl): f for f in folders(self.root)}
        self._verdicts = Verdicts(self.root / "verdicts.jsonl")
        self._lock = asyncio.Lock()

    def prompts(self, order: Order, problem: Problem) -> dict[str, str]:
        return {}

    async def attempt(self, task: Task) -> Work:
        order = task.order
        folder = self._folders.get((order.model, order.problem, order.replicate, order.dsl, order.source_dsl))
        if folder is None or order.aa or order.ablation or order.generation > 1:
            raise Unavailable(f"{self.root} has no folder for it")
        submissions, kernels = [], []
        for index, path in folder.submissions():
            text = _text(path)
            verdict = await self._verdict(task, folder, text, final=False)
            submissions.append(Submission(index=index, kernel_sha256=digests.of_text(text), verdict=verdict))
            kernels.append(text)
        note = _text(folder.path / "SKILL.md") if (folder.path / "SKILL.md").exists() else None
        note = note if note and note.strip() else None
        found = {"submissions": tuple(submissions), "note": note, "extra": {"agent": self.name}}
        if not (folder.path / "final.py").exists():
            reason = "no final.py: the attempt ended without a kernel on disk"
            return Work(**found, kernels=tuple(kernels), state=State.ERROR, reason=reason)
        text = _text(folder.path / "final.py")
        verdict = await self._verdict(task, folder, text, final=True)
        if getattr(verdict, "infrastructure", False):
            return Work(
                **found, kernels=tuple(kernels), state=State.ERROR, reason=f"no final verdict: {verdict.reason}"
            )
        return Work(**found, kernels=(*kernels, text), kernel_sha256=digests.of_text(text), verdict=verdict)

    async def _verdict(self, task: Task, folder: Folder, text: str, final: bool) -> Verdict:
        """The first verdict on file for a submission, the latest for the final kernel; graded now where none is."""
        key = (folder.problem, folder.dsl, digests.of_text(text))
        async with self._lock:
            if key not in self._verdicts.known:
                graded = await task.evaluate(text)
                if getattr(graded.verdict, "infrastructure", False):
                    return graded.verdict
                self._verdicts.add(key, graded.verdict)
            return self._verdicts.known[key][-1 if final else 0]

    async def close(self) -> None:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise Unavailable(f"{path}: cannot be read ({fault}); mend that file") from None
