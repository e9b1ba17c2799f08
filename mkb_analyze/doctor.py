"""What is installed here and what works: each finding with its cure."""

import importlib.util
import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

EXTRAS = {
    "cupy": "gpu",
    "tvm": "dsl",
    "cutlass": "dsl",
    "label_studio_sdk": "review",
    "ray": "cluster",
    "torch": "torch",
    "xllamacpp": "llm-local",
}


def examine(endpoint: str | None = None) -> list[dict[str, Any]]:
    """Rows {what, ok, found, cure}; nothing is changed and no key is shown."""
    rows = [
        _row("Python", sys.version_info >= (3, 11), sys.version.split()[0], "install Python 3.11 or newer"),
        _row("mkb-analyze", True, _version("mkb-analyze"), ""),
    ]
    rows += [
        _row(
            f"module {name}",
            importlib.util.find_spec(name) is not None,
            "installed" if importlib.util.find_spec(name) else "not installed",
            f"pip install 'mkb-analyze[{extra}]' if you need it",
        )
        for name, extra in EXTRAS.items()
    ]
    rows += _devices()
    rows.append(
        _row(
            "free disk",
            (free := shutil.disk_usage(".").free) > 2 << 30,
            f"{free / 2**30:.1f} GiB",
            "free at least 2 GiB",
        )
    )
    rows.append(
        _row(
            "OPENAI_API_KEY",
            "OPENAI_API_KEY" in os.environ,
            "set" if "OPENAI_API_KEY" in os.environ else "not set",
            "set it for openai:MODEL raters; a local server takes any value",
        )
    )
    if endpoint:
        rows.append(_endpoint(endpoint))
    return rows


def _devices() -> list[dict[str, Any]]:
    from runner.evaluate import devices

    facts = devices()
    rows = [
        _row(
            "GPU",
            bool(facts.get("n_gpus")),
            facts.get("cuda") or "none",
            "a GPU is needed for CuTe DSL and for figures that compare",
        ),
        _row(
            "isolation of submissions",
            bool(facts.get("isolation")),
            ", ".join(facts.get("isolation") or ()) or "none",
            "allow `unshare` so that submissions lose the network",
        ),
    ]
    for name, fact in facts["dsls"].items():
        rows.append(
            _row(
                f"DSL {name}",
                fact["missing"] is None,
                ", ".join(f"{k} {v}" for k, v in fact["versions"].items()) or "not installed",
                fact["missing"] or "",
            )
        )
    return rows


def _endpoint(url: str) -> dict[str, Any]:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url.rstrip("/") + "/models", timeout=5) as answer:
            return _row(f"endpoint {url}", answer.status == 200, f"status {answer.status}", "")
    except urllib.error.HTTPError as fault:
        return _row(
            f"endpoint {url}",
            fault.code in (401, 403),
            f"status {fault.code}",
            "it answers; check the address or the key",
        )
    except (OSError, ValueError) as fault:
        return _row(f"endpoint {url}", False, str(fault)[:120], "start the server, or mend the address")


def _row(what: str, ok: bool, found: str, cure: str) -> dict[str, Any]:
    return {"what": what, "ok": bool(ok), "found": found, "cure": "" if ok else cure}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from source"
