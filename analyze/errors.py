"""The one exception for what the user can mend."""


class InputError(Exception):
    """Bad input: one clear sentence that names the file and the place. The CLI prints it and exits with 2."""
