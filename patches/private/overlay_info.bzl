"""What a patch overlay hands to the rules that put it into an image."""

OverlayInfo = provider(
    doc = "The files that a patch series changes in one wheel.",
    fields = {
        "manifest": "File: overlay.json: source wheel, patches with their headers, files with sha256 before and after.",
        "project": "string: the patched project, as the wheel's name has it, e.g. vllm.",
        "tree": "File: folder with the changed files alone, at their paths in the wheel.",
        "version": "string: the version that the series is for.",
    },
)
