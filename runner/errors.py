"""The one error that a user's mistake raises: a line that says the value, the rule and the cure."""


class UserError(Exception):
    """A mistake the user can mend; the command line prints its one line and leaves with status 2."""

    def __init__(self, message: str):
        super().__init__(" ".join(str(message).split()))
