"""``python -m twolayer``."""

import sys

from twolayer.cli import main

sys.exit(main())
