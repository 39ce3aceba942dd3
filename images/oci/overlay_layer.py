"""A patch overlay to one layer, with the distribution's RECORD brought up to date.

usage: overlay_layer.py --name NAME --mtime SECONDS --out PREFIX --overlay FOLDER --manifest overlay.json
           --records RECORDS.json

RECORDS.json is what wheel_layer.py wrote for the layer that holds the distribution.
"""

import base64
import csv
import io
import json
import sys
from pathlib import Path

from images.oci import command, layer, wheel_layer


def hash_value(digest: str) -> str:
    """Returns RECORD's form of a SHA-256 in hex."""
    return "sha256=" + base64.urlsafe_b64encode(bytes.fromhex(digest)).decode().rstrip("=")


def updated_record(record: str, files: dict[str, tuple[str, int]]) -> str:
    """Returns RECORD with the rows of `files` (path: SHA-256 in hex, size in bytes) replaced or added."""
    rows = {row[0]: row for row in csv.reader(io.StringIO(record))}
    for path, (digest, size) in files.items():
        rows[path] = [path, hash_value(digest), str(size)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(row for _, row in sorted(rows.items()))
    return out.getvalue()


def record_path(records: dict[str, str], project: str, version: str) -> str:
    """Returns the path of the distribution's RECORD; raises LayerError when the base layer lacks it."""
    path = f"{wheel_layer.SITE}/{project.replace('-', '_')}-{version}.dist-info/RECORD"
    if path not in records:
        raise layer.LayerError(f"the overlay is of {project} {version}, but the base layer has no {path}")
    return path


def main(argv: list[str] | None = None) -> int:
    """Runs the command line above; returns the exit status."""
    parser = command.parser()
    parser.add_argument("--overlay", type=Path, required=True)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--records", type=Path, required=True)
    args = parser.parse_args(argv)

    def fill(out: layer.LayerWriter) -> None:
        overlay = json.loads(args.manifest.read_text())
        records = json.loads(args.records.read_text())
        record = record_path(records, overlay["project"], overlay["version"])
        out.owner = f"{overlay['project']}-{overlay['version']}+moet"
        files = {}
        for entry in sorted(overlay["files"], key=lambda e: e["path"]):
            data = Path(args.overlay, entry["path"]).read_bytes()
            digest = out.file(f"{wheel_layer.SITE}/{entry['path']}", data)
            if digest != entry["after"]:
                raise layer.LayerError(f"{entry['path']} is not what overlay.json says: {digest}, not {entry['after']}")
            files[entry["path"]] = (digest, len(data))
        out.file(record, updated_record(records[record], files).encode())

    return command.write(args, fill)


if __name__ == "__main__":
    sys.exit(main())
