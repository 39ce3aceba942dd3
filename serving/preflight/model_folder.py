"""The checkpoint's folder and its config.json."""

import shlex
from pathlib import Path

from serving.preflight import access, documents
from serving.preflight.documents import DocumentError
from serving.preflight.host import Host
from serving.preflight.result import Result, finding, ok
from serving.preflight.subject import Subject

CONFIG = "config.json"

_UNSEEN = "the container has only this folder, at another path, and cannot follow the link"
_UNREADABLE = f"the server runs as user {access.UID} and has to read it"


def check(subject: Subject, _host: Host) -> list[Result]:
    """Whether the folder is there, the container's user may read it, and config.json is the line's model."""
    folder = subject.model
    where = f"{subject.knob('model')} is {folder}"
    if not folder.is_dir():
        state = "which is no folder" if folder.exists() else "which does not exist"
        mend = f"--set {subject.knob('model')}=FOLDER, or fill it: {download(folder)}"
        return [finding("model", f"{where}, {state}", "there is no checkpoint to serve", mend)]
    if not access.may(folder, access.READ | access.ENTER):
        return [finding("model", f"{where}, closed to user {access.UID}", _UNREADABLE, f"chmod a+rx {_quoted(folder)}")]
    return [_config(folder, subject.needs.model_type)]


def download(folder: Path) -> str:
    """The command that fills a checkpoint's folder, or completes it."""
    return f"hf download REPOSITORY --local-dir {_quoted(folder)}"


def unseen(check_name: str, folder: Path, what: str) -> Result:
    """The finding of links that lead out of the folder."""
    return finding(check_name, what, _UNSEEN, f"cp -rL {_quoted(folder)} NEW_FOLDER, and name that one")


def unreadable(check_name: str, folder: Path, what: str) -> Result:
    """The finding of files that the container's user may not read."""
    return finding(check_name, what, _UNREADABLE, f"chmod -R a+rX {_quoted(folder)}")


def _config(folder: Path, expected: str) -> Result:
    path = folder / CONFIG
    try:
        if (target := access.leaves(folder, CONFIG)) is not None:
            return unseen("model", folder, f"{path} is a link to {target}, outside of the folder")
        found = documents.read(path).get("model_type")
        readable = access.may(path, access.READ)
    except OSError as error:
        return finding("model", f"{path}: {error.strerror}", "it says what the model is", download(folder))
    except DocumentError as error:
        again = f"rm {_quoted(path)} && {download(folder)}"
        return finding("model", f"{path} {error}", "it says what the model is", again)
    if not readable:
        return unreadable("model", folder, f"{path} cannot be read by user {access.UID}")
    if found != expected:
        what = f"{path}: model_type is {found!r}, expected {expected!r}"
        return finding("model", what, "the image serves this model alone", "name the folder of the line's checkpoint")
    return ok("model", f"{folder}: {expected}")


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
