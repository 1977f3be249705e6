"""`python -m eval`, with recipes/voice on the path; `scripts/eval-voice` installs what it needs."""

import sys

if __name__ == "__main__":  # spawned recogniser processes import this module too
    from .command import main

    sys.exit(main())
