"""Runs pytest over the files that pytest_test names, and reports to Bazel."""

import os
import sys

import pytest


def main() -> int:
    """Returns pytest's exit status; honours Bazel's --test_filter and XML report."""
    args = ["-p", "no:cacheprovider", "--rootdir=.", "-ra", "--import-mode=importlib"]
    if report := os.environ.get("XML_OUTPUT_FILE"):
        args.append("--junitxml=" + report)
    if wanted := os.environ.get("TESTBRIDGE_TEST_ONLY"):
        args += ["-k", wanted]
    return int(pytest.main(args + sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
