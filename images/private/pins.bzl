"""Everything that a line is made of, as its manifest states it."""

load("//third_party/debian:bookworm.lock.bzl", "BOOKWORM")
load("//third_party/python:repositories.bzl", "CLOSURES")

def line_pins(line):
    """Returns the pins of a line: its wheels, all Debian packages, and sources without a file.

    Args:
      line: what line() returned.

    Returns:
      A list of structs with name, version, kind, and file, sha256 and commit where they exist.
    """
    commits = {source.name: source.commit for source in line.sources}
    pins = []
    wheels = CLOSURES[line.closure]
    for name, pin in wheels.items():
        fields = dict(name = name, version = pin["version"], kind = "wheel", file = pin["file"], sha256 = pin["sha256"])
        if name in commits:
            fields["commit"] = commits[name]
        pins.append(struct(**fields))
    for name, pin in BOOKWORM.items():
        pins.append(struct(
            name = name,
            version = pin["version"],
            kind = "deb",
            file = pin["file"],
            sha256 = pin["sha256"],
        ))
    for source in line.sources:
        if source.name not in wheels:
            pins.append(struct(name = source.name, version = source.version, kind = "source", commit = source.commit))
    return pins
