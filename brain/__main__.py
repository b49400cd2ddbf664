"""`python -m brain`."""

import sys

from brain.cli.main import main

sys.exit(main())
