"""How inputs are called where others read it: package URLs (purl)."""

from urllib.parse import quote

from images.manifest.model import Pin

_KINDS = {"wheel": "pypi/", "deb": "deb/debian/", "source": "generic/"}


def purl(pin: Pin) -> str:
    """The package URL of an input, with the file where one was fetched."""
    qualifiers = {}
    if pin.kind == "deb" and pin.file and "_" in pin.file:
        qualifiers["arch"] = pin.file.rpartition("_")[2].removesuffix(".deb")
    if pin.kind == "wheel" and pin.file:
        qualifiers["file_name"] = pin.file
    name = pin.name.lower()
    if pin.kind == "wheel":
        name = name.replace("_", "-")
    text = f"pkg:{_KINDS[pin.kind]}{_escape(name)}@{_escape(pin.version)}"
    query = "&".join(f"{key}={_escape(value)}" for key, value in sorted(qualifiers.items()))
    return f"{text}?{query}" if query else text


def reference(pin: Pin) -> str:
    """What tells an input from every other one of an image."""
    return f"{pin.kind}:{pin.name}@{pin.version}" + (f"/{pin.file}" if pin.file else "")


def _escape(text: str) -> str:
    return quote(text, safe="-._~")
