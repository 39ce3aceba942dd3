"""The time that every file of a layer states."""

# 2026-01-01T00:00:00Z. Constant, so that a bump of one pin leaves the other layers' bytes alone; after
# 1980, so that tools which zip files accept it.
LAYER_MTIME = 1767225600
