"""How a question must be spelled for one server: which structured output it has and which parameters it takes."""

import re
from dataclasses import dataclass, replace
from typing import Any

from runner.chat import Chat

_TOOLS = re.compile(
    r"\btools?\b.*(support|param|choice|use)|(support|param|unknown|unrecognized|extra).*\btools?\b|function calling",
    re.S,
)
MODES = ("json_schema", "json_object", "text")


@dataclass(frozen=True)
class Shape:
    """The spelling that a server takes; it starts with everything and loses what the server refuses."""

    mode: str = "json_schema"
    room: str = "max_tokens"
    seed: bool = True
    temperature: bool = True
    system: bool = True
    tools: bool = True

    def body(self, model: str, request: Any, room: int) -> dict[str, Any]:
        """The JSON of one chat completion request."""
        if isinstance(request, Chat):
            body = {"model": model, **request.content(self.tools, self.system), self.room: room}
            return self._drawn(body, request)
        if self.system:
            messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
        else:
            # The first line of an item stays the first line of its message: the prefix speaks of it.
            first, _, rest = request.user.partition("\n")
            messages = [{"role": "user", "content": f"{first}\n\n{request.system}\n\n{rest}"}]
        body: dict[str, Any] = {"model": model, "messages": messages, self.room: room}
        if self.mode == "json_schema":
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": request.schema_name, "strict": True, "schema": request.schema},
            }
        elif self.mode == "json_object":
            body["response_format"] = {"type": "json_object"}
        return self._drawn(body, request)

    def _drawn(self, body: dict[str, Any], request: Any) -> dict[str, Any]:
        """The body with the seed and the temperature that the server takes."""
        if self.seed and request.seed is not None:
            body["seed"] = request.seed
        if self.temperature and request.temperature is not None:
            body["temperature"] = request.temperature
        return body

    def found(self) -> dict[str, Any]:
        """What was found out, as a rater's record keeps it."""
        left_out = [
            n for n, has in (("seed", self.seed), ("temperature", self.temperature), ("system", self.system)) if not has
        ]
        return {"output": self.mode, **({"left_out": left_out} if left_out else {})}


def adapted(shape: Shape, status: int, message: str) -> Shape | None:
    """The next spelling to try after a refusal; None when the refusal is not about the spelling.

    Servers word this in many ways; only a refusal (400, 404, 415, 422, 501) that names the parameter counts.
    """
    said = message.lower()
    if shape.tools and status in (400, 404, 415, 422, 500, 501) and _TOOLS.search(said):
        return replace(shape, tools=False)  # llama.cpp answers 500 where its template has no tools
    if status not in (400, 404, 415, 422, 501):
        return None
    names_format = any(
        w in said for w in ("response_format", "json_schema", "json_object", "structured output", "grammar")
    )
    if names_format and shape.mode != "text":
        return replace(shape, mode=MODES[MODES.index(shape.mode) + 1])
    if shape.room == "max_tokens" and "max_completion_tokens" in said:
        return replace(shape, room="max_completion_tokens")
    if shape.seed and "seed" in said:
        return replace(shape, seed=False)
    if shape.temperature and "temperature" in said:
        return replace(shape, temperature=False)
    if shape.system and "system" in said and ("role" in said or "message" in said):
        return replace(shape, system=False)
    return None
