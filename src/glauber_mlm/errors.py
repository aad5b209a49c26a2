"""The one exception that is meant for the user's eyes."""


class UserError(ValueError):
    """Bad input, told in one line: what was wrong, what is allowed, what to do.

    The command line prints the message without a traceback and exits with status 2; a notebook shows it as one line.

    Parameters
    ----------
    message : str
        Line breaks, as file names and messages of libraries may hold, become spaces.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(part for line in message.splitlines() if (part := line.strip())))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]
