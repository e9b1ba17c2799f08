"""An OpenAI-compatible server on loopback that answers by script and misbehaves by plan; `python -m` runs it alone."""

import argparse
import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.servers import agent, scripted
from tests.servers.batches import Batches

Plan = Callable[[dict, int], str | None]  # (body, how often this item was sent before) -> what goes wrong, or None


class Server:
    """Runs in a thread of its own; `url` is what a client takes as base URL.

    `plan` names what goes wrong with a request: a status (`429`, `500` …), `429:SECONDS` with Retry-After, `reset`,
    `slow:SECONDS`, `truncated`, `short-of-room` (truncated until there is more room), `refusal`, `filter`, `empty`,
    `html`, `no-choices`, or a wrong answer of `scripted.SPOILS`. `refuse` names what the server does not take:
    `json_schema`, `json_object`, `seed`, `temperature`, `max_tokens`, `system`, `tools`. `writer` plays the kernel
    writer where an agent asks.
    """

    def __init__(
        self,
        plan: Plan | None = None,
        refuse: tuple[str, ...] = (),
        latency_s: float = 0.0,
        answer: Callable[[dict], dict] = scripted.answer,
        key: str | None = None,
        log: str | None = None,
        per_window: tuple[int, float] | None = None,
        usage: bool = True,
        keep: bool = True,
        writer: agent.Writer | None = None,
    ):
        self.plan, self.refuse, self.latency_s, self.answer, self.key = plan, refuse, latency_s, answer, key
        self.usage, self.per_window, self.keep = usage, per_window, keep
        self.writer = writer or agent.Writer()
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.answered: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.n_under_way = self.most_under_way = 0
        self.times: list[float] = []
        self._log = open(log, "a", buffering=1) if log else None  # noqa: SIM115 (open as long as the server)
        self._ready = threading.Event()
        self.batches = Batches(self)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/chat/completions", self._completion)
        app.router.add_get("/v1/models", self._models)
        self.batches.routes(app.router)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "no such key"}}, status=401)
        return web.json_response({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    # Running ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Server":
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        if not self._ready.wait(20):
            raise RuntimeError("the server did not start")
        return self

    def __exit__(self, *_: Any) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self.start()
        self._ready.set()
        await self._stop.wait()
        await self._runner.cleanup()

    async def start(self, port: int = 0) -> None:
        """Listen on loopback; `url` says where."""
        self._runner = web.AppRunner(self.app(), shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    # Answering -------------------------------------------------------------------------------------------------

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.keep:
            self.bodies.append(body)
            self.headers.append(dict(request.headers))
            self.times.append(time.monotonic())
        self.n_under_way += 1
        self.most_under_way = max(self.most_under_way, self.n_under_way)
        try:
            return await self._respond(request, body)
        finally:
            self.n_under_way -= 1

    async def _respond(self, request: web.Request, body: dict) -> web.StreamResponse:
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return _error(401, f"Incorrect API key provided: {request.headers.get('Authorization')}")
        if refusal := self._refusal(body):
            return _error(400, refusal)
        if (
            self.per_window
            and len(self.times) > self.per_window[0]
            and self.times[-1] - self.times[-1 - self.per_window[0]] < self.per_window[1]
        ):
            return _error(429, "rate limit reached")
        key = scripted.key_of(body)
        trouble = self.plan(body, self.sent[key]) if self.plan else None
        self.sent[key] += 1
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if trouble and trouble.startswith("slow:"):
            await asyncio.sleep(float(trouble.split(":")[1]))
            trouble = None
        if trouble == "reset":
            request.transport.abort()
            return web.Response()
        if trouble and trouble.split(":")[0].isdigit():
            status, _, wait = trouble.partition(":")
            if wait == "quota":
                return _error(int(status), "You exceeded your current quota", "insufficient_quota")
            return _error(int(status), "told to fail", headers={"Retry-After": wait} if wait else None)
        if trouble == "html":
            return web.Response(text="<html>proxy</html>", content_type="text/html")
        response = web.json_response(self.completion(body, trouble))
        await response.prepare(request)
        await response.write_eof()
        self._answered(key)
        return response

    def _answered(self, key: str) -> None:
        self.answered[key] += 1
        if self._log:
            self._log.write(json.dumps({"key": key, "t": time.time()}) + "\n")

    def completion(self, body: dict, trouble: str | None = None) -> dict:
        """The body of one chat completion."""
        if agent.speaks(body):
            good, message = {}, self.writer.message(body)
        else:
            good = self.answer(body)
            message = {"role": "assistant", "content": json.dumps(good), "refusal": None}
        finish, room = "stop", body.get("max_tokens") or body.get("max_completion_tokens") or 1 << 20
        if trouble == "truncated" or (trouble == "short-of-room" and room < 2000):
            message["content"], finish = message["content"][:20], "length"
        elif trouble == "refusal":
            message |= {"content": None, "refusal": "I cannot help with that."}
        elif trouble == "filter":
            message["content"], finish = "", "content_filter"
        elif trouble == "empty":
            message["content"] = ""
        elif trouble in scripted.SPOILS:
            message["content"] = scripted.spoilt(trouble, good)
        n_in = sum(len(m["content"] or "") for m in body["messages"]) // 4
        out = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [] if trouble == "no-choices" else [{"index": 0, "message": message, "finish_reason": finish}],
        }
        if self.usage:
            n_out = max(1, len(message["content"] or "") // 4)
            out["usage"] = {
                "prompt_tokens": n_in,
                "completion_tokens": n_out,
                "total_tokens": n_in + n_out,
                "prompt_tokens_details": {"cached_tokens": n_in // 2},
            }
        return out

    def _refusal(self, body: dict) -> str | None:
        kind = (body.get("response_format") or {}).get("type")
        if kind in self.refuse:
            return f"Invalid parameter: 'response_format' of type '{kind}' is not supported with this model."
        for name in ("seed", "temperature", "max_tokens"):
            if name in self.refuse and name in body:
                told = " Use 'max_completion_tokens' instead." if name == "max_tokens" else ""
                return f"Unsupported parameter: '{name}' is not supported with this model.{told}"
        if "tools" in self.refuse and "tools" in body:
            return "tools are not supported by this model"
        if "system" in self.refuse and body["messages"][0]["role"] == "system":
            return "System role not supported"
        return None


def _error(status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None) -> web.Response:
    told = {"error": {"message": message, "type": "error", "code": code}}
    return web.json_response(told, status=status, headers=headers)


def by_chance(seed: int, share: float) -> Plan:
    """A plan that spoils a share of the sends, the same in every run; from the fourth send on all get through."""
    kinds = ("429:0.01", "500", "502", "503", "reset", "slow:0.02", "html", "no-json", "outside", "missing", "refusal")

    def plan(body: dict, n_before: int) -> str | None:
        draw = random.Random(f"{seed}:{scripted.key_of(body)}:{n_before}")
        return draw.choice(kinds) if n_before < 3 and draw.random() < share else None

    return plan


def main() -> None:
    """Serve until killed; the first line on standard output is the URL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--trouble", type=float, default=0.0, help="share of sends that go wrong")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", help="file that gets a line for each answered request")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    plan = by_chance(given.seed, given.trouble) if given.trouble else None
    server = Server(plan, latency_s=given.latency_ms / 1e3, log=given.log, keep=False)

    async def serve() -> None:
        await server.start(given.port)
        print(server.url, flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
