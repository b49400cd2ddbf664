"""`python tests/screens [NAME…]`: see `pictures`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # where the tests' own modules are

from screens.pictures import main

if __name__ == "__main__":
    sys.exit(main())
