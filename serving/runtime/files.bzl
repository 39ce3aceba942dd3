"""What of this folder is installed in an image, and where."""

# Label to path in the image (no leading slash). The Python files keep their path from the root, so that they
# are imported by the same name in the image and here.
RUNTIME_FILES = {
    "//images/manifest:model.py": "usr/lib/moet/images/manifest/model.py",
    "//serving/runtime:attest.py": "usr/lib/moet/serving/runtime/attest.py",
    "//serving/runtime:bytecode.py": "usr/lib/moet/serving/runtime/bytecode.py",
    "//serving/runtime:files.py": "usr/lib/moet/serving/runtime/files.py",
    "//serving/runtime:imports.py": "usr/lib/moet/serving/runtime/imports.py",
    "//serving/runtime:main.py": "usr/lib/moet/serving/runtime/main.py",
    "//serving/runtime:mismatch.py": "usr/lib/moet/serving/runtime/mismatch.py",
    "//serving/runtime:record.py": "usr/lib/moet/serving/runtime/record.py",
    "//serving/runtime:report.py": "usr/lib/moet/serving/runtime/report.py",
    "//serving/runtime:selftest.py": "usr/lib/moet/serving/runtime/selftest.py",
    "//serving/runtime:switches.py": "usr/lib/moet/serving/runtime/switches.py",
}

# Likewise, with mode 0755.
RUNTIME_EXECUTABLES = {
    "//serving/runtime:moet-serve": "usr/bin/moet-serve",
}

RUNTIME_ENTRYPOINT = ["/usr/bin/moet-serve"]
