"""The error that every program turns into one line."""


class UserError(Exception):
    """Something the person at the keyboard can mend.

    The message is one line: the thing, what was expected and what to do. Programs print it on stderr after
    their name and exit with `status`.
    """

    status = 1
