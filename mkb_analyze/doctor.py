"""What is installed here and what works, tried for real where that is cheap: each finding with its cure."""

import importlib.util
import os
import re
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from annotators.progress import Progress

# module → (extra, what it is for)
EXTRAS = {
    "cupy": ("gpu", "kernels on a GPU"),
    "tvm": ("dsl", "TIRx"),
    "cutlass": ("dsl", "CuTe DSL"),
    "numba": ("dsl", "numba, kernels on the processor"),
    "label_studio_sdk": ("review", "Label Studio"),
    "ray": ("cluster", "attempts on a cluster"),
    "torch": ("torch", "tensors from PyTorch"),
    "xllamacpp": ("llm-local", "a local model in this process"),
    "pyarrow": ("parquet", "tables as Parquet"),
    "mkdocs": ("docs", "the documentation"),
}
TIMEOUT_S = 5.0
_KEYS = ("OPENAI_API_KEY", "LABEL_STUDIO_API_KEY")
Row = dict[str, Any]


def examine(endpoint: str | None = None, study: Path | None = None, compile: bool = True) -> list[Row]:
    """Rows {what, ok, needed, found, cure}; nothing is changed and no key is shown.

    Args:
        endpoint: an OpenAI-compatible base URL; OPENAI_BASE_URL where None. One that was given must answer.
        study: a study whose own Label Studio is meant, where LABEL_STUDIO_URL is not set.
        compile: compile a tiny kernel with each installed DSL and run it where its device is here (seconds each).
    """
    rows = [
        _row("Python", sys.version_info >= (3, 11), sys.version.split()[0], "install Python 3.11 or newer", True),
        _row("mkb-analyze", True, _version("mkb-analyze"), ""),
    ]
    rows += [_module(name, extra, use) for name, (extra, use) in EXTRAS.items()]
    rows += _devices(compile)
    rows.append(_disk())
    rows += [_key(name) for name in _KEYS]
    url = endpoint or os.environ.get("OPENAI_BASE_URL")
    if url:
        rows.append(_endpoint(url, needed=endpoint is not None))
    rows.append(_label_studio(study))
    return [{**row, "found": hidden(row["found"]), "what": hidden(row["what"])} for row in rows]


def hidden(text: str) -> str:
    """The text without any key of this environment and without a password inside an address."""
    for name, value in os.environ.items():
        if re.search(r"KEY|TOKEN|SECRET|PASSWORD", name) and len(value) >= 8:
            text = text.replace(value, "…")
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)


def _module(name: str, extra: str, use: str) -> Row:
    there = importlib.util.find_spec(name) is not None
    cure = f"pip install 'mkb-analyze[{extra}]' for {use}"
    return _row(f"module {name}", there, f"installed, for {use}" if there else "not installed", cure)


def _disk() -> Row:
    free = shutil.disk_usage(".").free
    return _row("free disk", free > 2 << 30, f"{free / 2**30:.1f} GiB", "free at least 2 GiB", needed=True)


def _key(name: str) -> Row:
    cures = {
        "OPENAI_API_KEY": "set it for openai:MODEL raters; a local server takes any value",
        "LABEL_STUDIO_API_KEY": "set it for a server of your own (Account & Settings); `review serve` needs none",
    }
    there = bool(os.environ.get(name))
    return _row(name, there, "set" if there else "not set", cures[name])


def _devices(compile: bool) -> list[Row]:
    from runner.evaluate import devices

    facts = devices()
    gpu = facts["cuda"] if facts.get("n_gpus") else "none"
    rows = [
        _row("processor", True, facts["cpu"], ""),
        _row("GPU", bool(facts.get("n_gpus")), gpu, "a GPU is needed for CuTe DSL and for figures that compare"),
        _row(
            "isolation of submissions",
            bool(facts.get("isolation")),
            ", ".join(facts.get("isolation") or ()) or "none",
            "allow `unshare` so that submissions lose the network",
        ),
    ]
    wanted = list(_tries(facts)) if compile else []
    for name, fact in facts["dsls"].items():
        found = ", ".join(f"{k} {v}" for k, v in fact["versions"].items()) or "not installed"
        rows.append(_row(f"DSL {name}", fact["missing"] is None, found, fact["missing"] or ""))
    bar = Progress("compiling a tiny kernel", len(wanted))
    with ThreadPoolExecutor(max_workers=2) as pool:
        for row in pool.map(lambda job: _tried(*job), wanted):
            rows.append(row)
            bar.step()
    bar.close()
    return rows


def _tries(facts: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """(DSL, device, whether to run) for each installed DSL that has a probe: on the GPU if one is here."""
    from runner.dsls import _probe

    for name, fact in facts["dsls"].items():
        if fact["missing"] is not None or not _probe.has_probe(name):
            continue
        for device in fact["devices"]:
            yield name, device, device == "cpu" or bool(facts.get("n_gpus"))


def _tried(name: str, device: str, run: bool) -> Row:
    from runner.dsls import _probe

    seen = _probe.probe(name, device, run)
    said = "compiles" if seen.compiled else "does not compile"
    if seen.compiled:
        said += {True: " and runs", False: ", does not run", None: " (no GPU here to run it)"}[seen.ran]
    what = f"DSL {name} on {device}"
    ok = seen.compiled and seen.ran is not False
    cure = f"{seen.fault}; reinstall it: pip install --force-reinstall 'mkb-analyze[dsl]'" if not ok else ""
    return _row(what, ok, f"{said} ({seen.took_s:.1f} s)", cure)


def _endpoint(url: str, needed: bool) -> Row:
    """Whether an OpenAI-compatible server lists its models there, asked with the key if one is set."""
    what, headers = f"endpoint {_shown(url)}", {}
    if os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
    status, found = _get(url.rstrip("/") + "/models", headers)
    if status is None:
        return _row(what, False, found, "start the server, or mend the address", needed)
    cure = "it refuses the key: set OPENAI_API_KEY" if status in (401, 403) else "the address should end in /v1"
    return _row(what, status == 200, f"status {status}", cure, needed)


def _label_studio(study: Path | None) -> Row:
    url = os.environ.get("LABEL_STUDIO_URL")
    home = study / "review" / "server" if study else None
    if not url and home and (home / "url").is_file():
        url = (home / "url").read_text("utf-8").strip()
    if not url:
        return _row(
            "Label Studio",
            False,
            "no server named",
            "`mkb-analyze review serve --study S` starts one, or set LABEL_STUDIO_URL and LABEL_STUDIO_API_KEY",
        )
    status, found = _get(url.rstrip("/") + "/health", {})
    if status is None:
        return _row(f"Label Studio {_shown(url)}", False, found, "start the server, or mend LABEL_STUDIO_URL")
    return _row(f"Label Studio {_shown(url)}", status == 200, f"status {status}", "is this a Label Studio?")


def _get(url: str, headers: dict[str, str]) -> tuple[int | None, str]:
    """(status, words) of one GET; status None where nothing answered."""
    try:
        if urlsplit(url).scheme not in ("http", "https"):
            return None, "no http or https address"
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as fault:
        return fault.code, ""
    except (OSError, ValueError, urllib.error.URLError) as fault:
        return None, f"no answer ({str(getattr(fault, 'reason', fault))[:120]})"


def _shown(url: str) -> str:
    """An address without what may be a key: no user, no query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _row(what: str, ok: bool, found: str, cure: str, needed: bool = False) -> Row:
    return {"what": what, "ok": bool(ok), "needed": needed, "found": found, "cure": "" if ok else cure}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from source"
