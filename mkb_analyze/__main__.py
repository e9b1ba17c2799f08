"""`python -m mkb_analyze` and the console script: run the command line, turn mistakes into one line and a status."""

import sys


def main() -> None:
    try:
        from mkb_analyze.console import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # before anything began
        status = 130
    sys.exit(status)


if __name__ == "__main__":
    main()
