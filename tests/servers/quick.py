"""A server for benchmarks: answers content questions after a fixed latency at as little cost as can be, and counts them."""

import argparse
import asyncio
import json
import re

_MARK = re.compile(rb"\[[0-9a-f]{12} (\d+)\]")
_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)


class Quick(asyncio.Protocol):
    """One connection: whole requests in, each answered `latency_s` later in the order in which they came."""

    latency_s = 0.05

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._data = transport, b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._data, 0, end)
            stop = end + 4 + (int(length[1]) if length else 0)
            if len(self._data) < stop:
                return
            body, self._data = self._data[end + 4 : stop], self._data[stop:]
            asyncio.get_running_loop().call_later(self.latency_s, self._answer, body)

    def _answer(self, body: bytes) -> None:
        claims = [
            {"n": int(n), "label": "hardware_mapping", "evidence": "none", "dsl_specific": False}
            for n in dict.fromkeys(_MARK.findall(body))
        ]
        told = {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "tiny",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": json.dumps({"claims": claims}), "refusal": None},
                }
            ],
            "usage": {
                "prompt_tokens": 2000,
                "completion_tokens": 30 * len(claims),
                "total_tokens": 2000 + 30 * len(claims),
            },
        }
        raw = json.dumps(told).encode()
        if not self._transport.is_closing():
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(raw) + raw
            )


async def serve(latency_s: float) -> None:
    """Listen on loopback until killed; the first line on standard output is the URL."""
    Quick.latency_s = latency_s
    server = await asyncio.get_running_loop().create_server(Quick, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency-ms", type=float, default=50.0)
    asyncio.run(serve(parser.parse_args().latency_ms / 1e3))
