"""The machine-code part, or why there is none."""

import importlib
from typing import Any

MODULE: Any = None
WHY = ""
try:
    MODULE = importlib.import_module("serving.experts.storage.direct")
except ImportError as _error:
    WHY = f"the machine-code part is not there ({_error}): build //serving/experts/storage:direct"
