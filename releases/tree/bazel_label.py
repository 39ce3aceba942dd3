"""Whether a label that a step gives as its evidence stands for something in a tree, told without Bazel."""

import ast
import re
from collections.abc import Iterator

from releases.tree import line_data
from releases.tree.line_data import Reader
from tools.cli.errors import UserError

_LABEL = re.compile(r"//(?P<package>[^:]*)(?::(?P<target>[^:]+))?")
_FORMAT = re.compile(r"%[sd]|\{[^}]*\}")


def exists(reader: Reader, label: str) -> bool:
    """Whether the target `label` (//package:target) is made by its BUILD file, or is a file of the package.

    Names that a macro puts together ("%s_test" % name, prefix + "engine_test") are compared with what the macro's
    file says; how often the macro is called is not evaluated.
    """
    found = _LABEL.fullmatch(label)
    if not found:
        return False
    package = found["package"]
    target = found["target"] or package.rpartition("/")[2]
    for name in ("BUILD.bazel", "BUILD"):
        build = f"{package}/{name}".lstrip("/")
        if reader(build) is None:
            continue
        try:
            return _made(reader, build, package, target) or reader(f"{package}/{target}".lstrip("/")) is not None
        except UserError:
            return False
    return False


def _made(reader: Reader, build: str, package: str, target: str) -> bool:
    module = line_data.parse(reader, build)
    names = {value.value for value in _names(module) if isinstance(value, ast.Constant)}
    if target in names:
        return True
    given = "|".join(re.escape(str(name)) for name in sorted(names, key=str))
    for macro in _loaded(reader, module, package):
        for value in _names(macro):
            parts = _parts(value)
            if any(parts) and re.fullmatch(f"(?:(?:{given})?[._-]?)".join(map(re.escape, parts)), target):
                return True
    return False


def _names(module: ast.Module) -> Iterator[ast.expr]:
    """Every `name = ...` of a call."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            yield from (word.value for word in node.keywords if word.arg == "name")


def _loaded(reader: Reader, module: ast.Module, package: str) -> Iterator[ast.Module]:
    waiting = [path for path, _ in line_data.loads(module, package)]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or reader(path) is None:
            continue
        seen.add(path)
        loaded = line_data.parse(reader, path)
        yield loaded
        waiting += [further for further, _ in line_data.loads(loaded, path.rpartition("/")[0])]


def _parts(value: ast.expr) -> list[str]:
    """The fixed texts of a string expression; between each two stands something that is not known."""
    if isinstance(value, ast.Constant):
        return [str(value.value)]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        left, right = _parts(value.left), _parts(value.right)
        return [*left[:-1], left[-1] + right[0], *right[1:]]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod) and isinstance(value.left, ast.Constant):
        return _FORMAT.split(str(value.left.value))
    return ["", ""]
