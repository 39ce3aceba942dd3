"""Lines of bytes, split as a unified diff sees them."""


def split_lines(data: bytes) -> list[bytes]:
    """Split after each newline and only there: carriage returns and a missing last newline stay visible."""
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def show(line: bytes, width: int = 100) -> str:
    """One line for a report, at most `width` characters, with unusual line ends made visible."""
    body = line[:-1] if line.endswith(b"\n") else line + b" (no newline at end of file)"
    text = body.decode("utf-8", "backslashreplace").replace("\r", "\\r").replace("\t", "\\t")
    return text if len(text) <= width else text[: width - 3] + "..."
