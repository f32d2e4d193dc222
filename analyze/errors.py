"""The exceptions for what the user can mend."""


class InputError(Exception):
    """Bad input: one clear sentence that names the file and the place. The CLI prints it and exits with 2."""


class StorageError(InputError):
    """What the storage behind a URL refuses, or fails to do: nothing is known of the file, so none is left out."""


class MachineError(InputError):
    """What stops the machine, not the input: a full disk, a killed process. Another machine may do the same work."""


def unreadable(path: object, error: OSError | ValueError) -> InputError:
    """That a path cannot be looked at, and why, as the system says it."""
    return InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}")
