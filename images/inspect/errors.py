"""The error of reading an image, safe to print whatever the image says."""

from images.inspect.text import plain
from tools.cli.errors import UserError


class InspectError(UserError):
    """An image that cannot be found, is none of Moet's, or is not what its hashes say.

    Names in the message may come from the image: what could move a terminal's cursor is escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__(plain(message, 1000))
