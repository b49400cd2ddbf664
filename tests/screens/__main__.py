"""`python tests/screens [NAME…]`: see `taking`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # where the tests' own modules are

from screens.taking import main

if __name__ == "__main__":
    sys.exit(main())
