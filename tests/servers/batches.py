"""The Batch API of the scripted server: files in, batches that take a few looks to finish, results in no order."""

import json
import random
from typing import Any

from aiohttp import web


class Batches:
    """State of the file and batch endpoints. `n_looks` polls pass before a batch is done; `spoil` edits its lines."""

    def __init__(self, server: Any):
        self.server = server
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict] = {}
        self.n_looks = 2
        self.n_created = self.n_uploaded = 0
        self.lose_after_create = False  # answer 500 though the batch was made, as a cut connection does
        self.end = "completed"  # the status that the next batch ends with
        self.spoil = lambda lines: lines

    def routes(self, router: Any) -> None:
        router.add_post("/v1/files", self._upload)
        router.add_get("/v1/files/{id}/content", self._content)
        router.add_post("/v1/batches", self._create)
        router.add_get("/v1/batches", self._list)
        router.add_get("/v1/batches/{id}", self._look)

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        name = self._keep(form["file"].file.read())
        return web.json_response(
            {
                "id": name,
                "object": "file",
                "bytes": len(self.files[name]),
                "created_at": 0,
                "filename": "x.jsonl",
                "purpose": "batch",
                "status": "processed",
            }
        )

    def _keep(self, content: bytes) -> str:
        self.n_uploaded += 1
        name = f"file-{self.n_uploaded}"
        self.files[name] = content
        return name

    async def _content(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["id"]], content_type="application/octet-stream")

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.n_created += 1
        name = f"batch-{self.n_created}"
        self.batches[name] = {
            "id": name,
            "object": "batch",
            "endpoint": body["endpoint"],
            "completion_window": "24h",
            "created_at": 0,
            "input_file_id": body["input_file_id"],
            "status": "validating",
            "metadata": body.get("metadata"),
            "looks": 0,
            "end": self.end,
        }
        self.end = "completed"
        if self.lose_after_create:
            self.lose_after_create = False
            return web.json_response({"error": {"message": "lost"}}, status=500)
        return web.json_response(self.batches[name])

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": list(reversed(self.batches.values())), "has_more": False})

    async def _look(self, request: web.Request) -> web.Response:
        batch = self.batches[request.match_info["id"]]
        batch["looks"] += 1
        if batch["status"] in ("validating", "in_progress"):
            if batch["looks"] >= self.n_looks:
                self._finish(batch)
            else:
                batch["status"] = "in_progress"
        return web.json_response(batch)

    def _finish(self, batch: dict) -> None:
        batch["status"] = batch["end"]
        if batch["status"] == "failed":
            batch["errors"] = {"object": "list", "data": [{"code": "bad", "message": "file refused"}]}
            return
        good, bad = [], []
        for raw in self.files[batch["input_file_id"]].splitlines():
            line = json.loads(raw)
            trouble = self.server.plan(line["body"], 0) if self.server.plan else None
            told = {"id": "r", "custom_id": line["custom_id"], "error": None}
            if trouble and trouble.split(":")[0].isdigit():
                status = int(trouble.split(":")[0])
                told["response"] = {"status_code": status, "body": {"error": {"message": "told to fail"}}}
                bad.append(json.dumps(told))
            else:
                told["response"] = {"status_code": 200, "body": self.server.completion(line["body"], trouble)}
                good.append(json.dumps(told))
        random.Random(7).shuffle(good)
        for name, lines in (("output_file_id", good), ("error_file_id", bad)):
            if lines:
                batch[name] = self._keep("\n".join(self.spoil(lines)).encode() + b"\n")
