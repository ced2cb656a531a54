"""``python -m twolayer``."""

import sys

from twolayer.cli import script

sys.exit(script())
