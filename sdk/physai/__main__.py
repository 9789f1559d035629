"""`python -m physai`: the `physai` command where a program is named by its module, as by torchrun."""

import sys

from physai.sdk.cli.main import main

sys.exit(main())
