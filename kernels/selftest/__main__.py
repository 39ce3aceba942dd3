"""Starts the self-test: `python3 -m moet_kernels.selftest` in an image, `python3 -m kernels.selftest` in the tree."""

import sys

from .main import main

sys.exit(main())
