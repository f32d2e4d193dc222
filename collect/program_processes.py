"""Which processes of this node belong to the recorded program? Linux only; elsewhere, none is known."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def marked_processes(mark: str) -> dict[int, str]:
    """Return the names of running processes, by number, whose environment contains `mark`."""
    found = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):
            if _is_marked(folder, mark):
                found[int(folder.name)] = (folder / "comm").read_text().strip()
    return found


class ProgramProcesses:
    """Tells the processes of the program from others: descendants of a process, and those whose environment has a mark.

    Only the environment tells the ranks that srun starts, and child processes whose parent has ended.
    """

    def __init__(self, ancestor: int, mark: str) -> None:
        self._ancestor, self._mark = ancestor, mark
        self._belongs: dict[int, bool] = {}

    def count_others(self, pids: Iterable[int]) -> int | None:
        """Return how many of these processes are not the program's; None if one cannot be seen from here."""
        others = 0
        for pid in pids:
            if pid not in self._belongs:
                try:
                    self._belongs[pid] = self._descends(pid) or self._has_mark(pid)
                except (FileNotFoundError, ProcessLookupError):
                    return None  # it has ended, or its number is that of another PID namespace
            others += not self._belongs[pid]
        return others

    def _descends(self, pid: int) -> bool:
        while pid > 1 and pid != self._ancestor:
            # The name, in parentheses, may contain spaces and parentheses; state and parent follow.
            pid = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        return pid == self._ancestor

    def _has_mark(self, pid: int) -> bool:
        with suppress(PermissionError):  # another user's
            return _is_marked(PROC / str(pid), self._mark)
        return False


def _is_marked(folder: Path, mark: str) -> bool:
    return mark.encode() in (folder / "environ").read_bytes()
