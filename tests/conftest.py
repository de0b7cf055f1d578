from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
