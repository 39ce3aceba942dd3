"""What a line's build makes, and what holds each thing still."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from releases.tree import line_data
from tools.cli.errors import UserError


@dataclass(frozen=True)
class Artifact:
    """Something that is built twice and compared.

    Attributes:
        name: what the ledger calls it.
        group: heading that it stands below.
        target: Bazel label.
        path: of the output, below bazel-bin; a file or a folder.
    """

    name: str
    group: str
    target: str
    path: str


# What two makings of one thing need not share, and why.
DIFFERS = (
    ("annotated git tag of a release", "states who made it and when; the commit that it points to is the same"),
    ("commit of a CHANGELOG entry and its record", "states its author and time; the files in it are the same"),
    ("receipts (docs/evidence)", "state the hardware, the date and a run's output: they are observations"),
    ("signature of another key", "the statement in the envelope is the same; one key's ed25519 signature is, too"),
    ("layers that a registry or an engine packed anew", "the image id is the same; the manifest digest is not"),
    ("caches that a container fills at run time", "compiled on the machine that serves"),
)

# Made by programs from the record of an image; //releases/ledger:documents makes them.
DOCUMENTS = ("CycloneDX SBOM", "statement of the SBOM", "statement of provenance", "DSSE envelope")

IMAGES = "Images"
LAYERS = "Layers"
KERNELS = "Kernels"
NATIVE = "Modules in C++"
PARTS = "Overlay and manifest"
ATTESTATIONS = "Documents about an image"
TOOLS = "Tools and pages"


def of_line(reader: line_data.Reader, line: str, overlay: str) -> list[Artifact]:
    """Returns what is built for a line. `overlay` is the label of its patch overlay. Raises UserError."""
    package = f"images/{line}"
    layers = [("rootfs", "//third_party/debian:rootfs", "third_party/debian/rootfs.tar.gz")]
    kernels = ["moet_kernels"] if names_kernels(reader, line) else []
    names = [*groups(reader, line), "links", "runtime", *kernels, "overlay_layer"]
    names += ["manifest.layer", "manifest.base.layer"]
    layers += [(name, f"//{package}:{name}", f"{package}/{name}.tar.gz") for name in names]
    found = [Artifact(name, LAYERS, target, path) for name, target, path in layers]
    folder = overlay.removeprefix("//").replace(":", "/")
    found.append(Artifact("overlay (files)", PARTS, overlay, folder))
    found.append(Artifact("overlay.json", PARTS, overlay, f"{folder}.json"))
    found += [
        Artifact(f"{name}.json", PARTS, f"//{package}:{name}", f"{package}/{name}.json")
        for name in ("manifest", "manifest.base")
    ]
    images = [(line, f"{line} (next release)"), (f"{line}.base", f"{line}.base (r0, upstream without steps)")]
    found += [Artifact(called, IMAGES, f"//{package}:{name}", f"{package}/{name}") for name, called in images]
    for name in kernel_families(reader):
        found.append(Artifact(f"{name}.so", KERNELS, f"//kernels/{name}", f"kernels/{name}/{name}.so"))
    for label in native_modules(reader):
        folder, _, name = label.removeprefix("//").partition(":")
        found.append(Artifact(f"{name}.so", NATIVE, label, f"{folder}/{name}.so"))
    return [*found, Artifact("moet.pyz", TOOLS, "//tools/moet:archive", "tools/moet/moet.pyz")]


def kernel_families(reader: line_data.Reader) -> list[str]:
    """Returns the names of all families of kernels. Raises UserError where kernels/families.bzl is not as expected."""
    return _listed(reader, "kernels/families.bzl", "FAMILIES")


def native_modules(reader: line_data.Reader) -> list[str]:
    """Returns the labels of all modules in C++. Raises UserError where tools/native/modules.bzl is not as expected."""
    return _listed(reader, "tools/native/modules.bzl", "MODULES")


def _listed(reader: line_data.Reader, where: str, variable: str) -> list[str]:
    """The strings of a list in a .bzl file."""
    for node in line_data.parse(reader, where).body:
        if isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == [variable]:
            return [str(name) for name in ast.literal_eval(node.value)]
    raise UserError(f"{where}: expected {variable} = [...]")


def names_kernels(reader: line_data.Reader, line: str) -> bool:
    """Returns whether a step of a line names kernels: its image then has a layer of them. Raises UserError."""
    return any(
        word.arg == "kernels" and ast.unparse(word.value) != "[]"
        for node in ast.walk(line_data.parse(reader, line_data.path(line)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "step"
        for word in node.keywords
    )


def groups(reader: line_data.Reader, line: str) -> Iterator[str]:
    """Yields the names of a line's layers of wheels, in order. Raises UserError."""
    for node in ast.walk(line_data.parse(reader, line_data.path(line))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "layer_group":
            named = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "name")]
            yield from (str(one.value) for one in named if isinstance(one, ast.Constant))
