"""What OCI's specifications allow in the name of an image (distribution-spec v1.1, "Pulling manifests")."""

import re

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"

# A repository's name: components of lower-case letters and digits, joined by "/".
REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
