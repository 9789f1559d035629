"""`python -m physai.sdk.cli`: the `physai` command where a program is named by its module, as by torchrun."""

import sys

from physai.sdk.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
