"""``python -m slca_lightning`` is ``slca``."""

import sys

from slca_lightning.cli import main

sys.exit(main())
