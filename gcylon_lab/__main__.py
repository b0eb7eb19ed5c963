"""``python -m gcylon_lab`` is ``gcylon-lab``."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
