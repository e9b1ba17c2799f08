"""The process that the kill test kills: annotates one study through one server, as the command line would."""

import sys

from annotators import panel
from runner.limits import Limits
from runner.study import Study


def main() -> None:
    study, url, concurrency = sys.argv[1:4]
    limits = Limits(concurrency=int(concurrency), n_tries=8, timeout_s=20)
    print(panel.annotate(Study(study), "openai:tiny", base_url=url, limits=limits, progress=False).text(), flush=True)


if __name__ == "__main__":
    main()
