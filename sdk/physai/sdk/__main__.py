"""`python -m physai.sdk`: the `physai` command where a program is named by its module, as by torchrun."""

import sys

from physai.sdk.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
