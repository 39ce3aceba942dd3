"""How much of an image that may be hostile is read. Moet's own stay far below."""

# A registry takes no larger manifest than 4 MiB; a configuration holds labels and history beside.
DOCUMENT = 8 << 20
# Moet's manifest in the image: 70 kB.
MANIFEST = 16 << 20
# Unpacked bytes of the layers that are looked through for the manifest, which is in the last.
SEARCH = 1 << 30
# Unpacked bytes of one layer whose files are listed.
LAYER = 64 << 30
# No layer of use shrinks to a hundredth; the smallest ones may.
RATIO = 100
RATIO_FROM = 256 << 20
# Entries of one tar, and bytes of one name in it.
ENTRIES = 2_000_000
NAME = 1 << 16
LAYERS = 128
