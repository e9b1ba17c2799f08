"""The only room that speaks Label Studio: projects, tasks and answers of one server, faults as one line."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from runner.errors import UserError

PAGE_TASKS = 100
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Project:
    """A project on a server. `made_at` tells two servers' projects of one number apart, whatever their addresses."""

    id: int
    made_at: str

    @property
    def name(self) -> str:
        return f"{self.id} {self.made_at}"


def kind_of(token: str) -> str:
    """What a token looks like, in words."""
    if token.count(".") == 2:
        return "a personal token (JWT)"
    if len(token) == 40 and set(token) <= set("0123456789abcdef"):
        return "a legacy token"
    return "a token of neither kind (a legacy one is 40 hex digits, a personal one three parts with dots)"


class Server:
    """One Label Studio server, spoken to with a legacy token (40 hex digits) or a personal one (a JWT).

    Raises (here and in every method):
        UserError: the SDK is not installed, the server does not answer or refuses the token.
    """

    def __init__(self, url: str, token: str):
        try:
            from label_studio_sdk import LabelStudio
        except ImportError:
            raise UserError(
                "label-studio-sdk: not installed here; pip install 'mkb-analyze[review]' (an environment of its own "
                "keeps numpy 2.2 away from yours)"
            ) from None
        self.url = url.strip().rstrip("/")
        self._token = token.strip()
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname:
            raise UserError(f"LABEL_STUDIO_URL {url}: an address with http:// or https:// is due")
        if not self._token.isascii() or not self._token.isprintable():
            raise UserError(f"LABEL_STUDIO_API_KEY: {kind_of(self._token)}; copy it anew from Account & Settings")
        with self._told():
            self._client = LabelStudio(base_url=self.url, api_key=self._token, **self._connection())
            self._client.users.whoami()

    def _connection(self) -> dict[str, Any]:
        import httpx

        # No proxy stands before the loopback address, though the environment may name one.
        near = urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")
        return {"timeout": TIMEOUT_S, "httpx_client": httpx.Client(timeout=TIMEOUT_S, trust_env=not near)}

    @contextmanager
    def _told(self) -> Iterator[None]:
        import httpx
        from label_studio_sdk.core.api_error import ApiError

        try:
            yield
        except ApiError as fault:
            if fault.status_code in (401, 403):
                raise UserError(self._refused(str(fault.status_code))) from None
            said = "" if "<html" in str(fault.body) else f" ({str(fault.body)[:200]})"
            raise UserError(
                f"{self.url}: the server answered {fault.status_code}{said}; what was done is kept, run the same command "
                "again, or mend LABEL_STUDIO_URL"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as fault:
            raise UserError(
                f"{self.url}: no answer ({type(fault).__name__}); start the server or mend LABEL_STUDIO_URL, then run "
                "the same command again"
            ) from None

    def _refused(self, why: str) -> str:
        return (
            f"{self.url}: the server refused {kind_of(self._token)} ({why}); take a valid one from Account & Settings "
            "(legacy tokens may be switched off there) and put it into LABEL_STUDIO_API_KEY"
        )

    def projects(self, marker: str) -> dict[str, list[Project]]:
        """Projects whose description's first line begins with `marker`: that line -> projects, oldest first."""
        with self._told():
            found: dict[str, list[Project]] = {}
            for p in self._client.projects.list(page_size=PAGE_TASKS):
                line = (p.description or "").split("\n", 1)[0].strip()
                if line.startswith(marker):
                    found.setdefault(line, []).append(Project(int(p.id), _time(p.created_at)))
            return {line: sorted(there, key=lambda p: p.id) for line, there in found.items()}

    def make_project(self, title: str, description: str, page: str) -> Project:
        """A project with that page; predictions fill the page, tasks come in the order in which they were sent."""
        with self._told():
            made = self._client.projects.create(
                title=title[:50],
                description=description,
                label_config=page,
                sampling="Sequential sampling",
                show_skip_button=True,
                maximum_annotations=1,
                show_collab_predictions=True,
            )
            return Project(int(made.id), _time(made.created_at))

    def n_tasks(self, project: int) -> int:
        """How many tasks a project holds."""
        with self._told():
            return int(self._client.projects.get(id=project).task_number or 0)

    def tasks(self, project: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """(task id, data) of every task, page by page."""
        with self._told():
            for task in self._client.tasks.list(project=project, page_size=PAGE_TASKS):
                yield int(task.id), dict(task.data or {})

    def send(self, project: int, tasks: Sequence[dict[str, Any]]) -> None:
        """Import tasks (`data`, `predictions`); all or none of one call."""
        with self._told():
            self._client.projects.import_tasks(id=project, request=list(tasks))

    def answered(self, project: int) -> Iterator[dict[str, Any]]:
        """Tasks with their annotations, streamed from an export on disk: memory does not grow with them."""
        import ijson

        with tempfile.TemporaryFile() as file:
            with self._told():
                for chunk in self._client.projects.exports.download_sync(
                    project, export_type="JSON", download_all_tasks=False
                ):
                    file.write(chunk)
            file.seek(0)
            yield from ijson.items(file, "item", use_float=True)

    def people(self) -> dict[int, str]:
        """Every account of the server: id -> e-mail."""
        with self._told():
            return {int(u.id): str(u.email) for u in self._client.users.list()}

    def invite_url(self) -> str:
        """Where a further person signs up."""
        with self._told():
            return self.url + str(
                json.loads(self._client.organizations.invites.get_invite_link().model_dump_json())["invite_url"]
            )

    def task_url(self, project: int, task: int) -> str:
        return f"{self.url}/projects/{project}/data?task={task}"


def _time(at: Any) -> str:
    return at.isoformat() if hasattr(at, "isoformat") else str(at)
