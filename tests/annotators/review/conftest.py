"""One real server and one browser a test run, with two people who signed up."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from tests.annotators.review.support import PASSWORD, Person, sign_up


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def server_home(tmp_path_factory) -> Path:
    """A folder as `review serve` keeps it. Its database is made once and kept between runs: that takes a minute."""
    from annotators.review import server

    kept = server.cache() / f"label-studio-{server.RELEASE}-test-home"
    if not kept.exists():
        making = kept.with_suffix(f".{os.getpid()}.tmp")
        with server.running(making, free_port()):
            pass
        os.replace(making, kept)
    home = tmp_path_factory.mktemp("server") / "server"
    shutil.copytree(kept, home)
    return home


@pytest.fixture(scope="session")
def served(request):
    """(address, token): the server that LABEL_STUDIO_URL names, or one that is started here."""
    if os.environ.get("LABEL_STUDIO_URL"):
        yield os.environ["LABEL_STUDIO_URL"], os.environ["LABEL_STUDIO_API_KEY"]
        return
    from annotators.review.server import running

    with running(request.getfixturevalue("server_home"), free_port()) as local:
        yield local.url, local.token


@pytest.fixture(scope="session")
def server(served):
    from annotators.label_studio import Server

    return Server(*served)


@pytest.fixture(scope="session")
def people(served, server):
    """name -> (e-mail, a person in a browser of their own)."""
    from playwright import sync_api

    invite, tag = server.invite_url(), os.urandom(4).hex()
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=os.environ.get("MKB_CHROMIUM", "/usr/bin/chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"],
        )
        out = {}
        for name in ("ana", "bo"):
            email = f"{name}-{tag}@localhost.test"
            sign_up(served[0], invite, email, PASSWORD)
            out[name] = (email, Person(browser, served[0], email, PASSWORD))
        yield out
        browser.close()
