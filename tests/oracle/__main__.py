"""Run every known-answer case of a folder: `python -m tests.oracle DIR`."""

import sys

from tests.oracle.run import main

sys.exit(main(sys.argv[1:]))
