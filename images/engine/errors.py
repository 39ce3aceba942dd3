"""The one exception of the load and push programs."""


class EngineError(Exception):
    """Something the person at the keyboard can mend.

    The message is one line: what was tried, what was expected and what to do. The programs print it to stderr
    and exit with 1.
    """
