"""`python -m eval`, with recipes/voice on the path; `scripts/eval-voice` sets up what it needs."""

import sys

if __name__ == "__main__":  # a recogniser's process imports this file too, and needs nothing of it
    from .command import main

    sys.exit(main())
