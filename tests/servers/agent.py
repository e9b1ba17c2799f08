"""A scripted kernel writer: plays tool calls by how far its conversation has come, and submits real kernels."""

import hashlib
import json
import re
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[1] / "runner" / "kernels"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "kernels"
SECRET = "the-agent-thinks-"  # every reply bears it with its conversation's own number: what leaks can be told by it
BROKEN = "def solve(:\n"


def speaks(body: dict) -> bool:
    """Whether a request is an agent's (or its distillation) and no rater's question."""
    first = body["messages"][0]["content"]
    return "write one fast, correct kernel" in first or distils(body)


def distils(body: dict) -> bool:
    return "write the note that an attempt" in body["messages"][0]["content"]


def told(body: dict) -> str:
    """The attempt's own user prompt."""
    return next(m["content"] for m in body["messages"] if m["role"] == "user")


def mark(body: dict) -> str:
    """A word of this conversation alone: drawn from its prompt and seed."""
    return SECRET + hashlib.sha256(f"{told(body)}{body.get('seed')}".encode()).hexdigest()[:10]


def kernel(body: dict) -> str:
    """A right kernel for the problem and DSL that the prompt names, marked as this conversation's own."""
    dsl = re.search(r"^DSL: (\w+)\.", told(body), re.M)[1]
    number = int(re.search(r"Problem (\d+)", told(body))[1])
    name = f"row_norm_{'tirx_cpu' if dsl == 'tirx' else dsl}.py" if number == 0 else f"{number}_{dsl}_cpu.py"
    file = KERNELS / name if (KERNELS / name).exists() else EXAMPLES / name
    return f"# {mark(body)}\n{file.read_text('utf-8')}"


class Writer:
    """What the model does, one action a reply; `notes` False leaves the note to the distillation."""

    def __init__(self, notes: bool = True, wrong_first: bool = True, submits: bool = True):
        self.notes, self.wrong_first, self.submits = notes, wrong_first, submits

    def actions(self, body: dict) -> list[tuple[str, dict]]:
        note = f"# Row norm\n\n- {mark(body)}-note: one pass over each row, float64 sums: passed.\n"
        out = [("read_problem", {}), ("search_docs", {"query": "loop over rows"})]
        out += [("submit", {"kernel": f"# {mark(body)}\n{BROKEN}"})] if self.wrong_first and self.submits else []
        out += [("submit", {"kernel": kernel(body)})] if self.submits else []
        out += [("write_note", {"text": note})] if self.notes else []
        return [*out, ("finish", {})]

    def message(self, body: dict) -> dict:
        """The assistant's next message."""
        if distils(body):
            text = f"# Distilled\n\n- {SECRET}distilled-{body.get('seed')}: the first submission did not parse.\n"
            return {"role": "assistant", "content": text}
        n_said = sum(m["role"] == "assistant" for m in body["messages"])
        actions = self.actions(body)
        name, arguments = actions[min(n_said, len(actions) - 1)]
        if "tools" not in body:
            return {"role": "assistant", "content": json.dumps({"tool": name, "arguments": arguments})}
        call = {"id": "call_0", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        return {"role": "assistant", "content": f"{mark(body)} step {n_said}", "tool_calls": [call]}
