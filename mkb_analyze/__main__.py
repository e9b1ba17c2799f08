"""`python -m mkb_analyze` and the console script: run the command line, turn mistakes into one line and a status."""

import sys

from mkb_analyze.console import run


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
