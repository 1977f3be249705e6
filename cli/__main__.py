"""`python -m voxgate.cli` runs the `voxgate` command."""

import sys

from .main import main

sys.exit(main())
