"""Commands in processes that are forked from one that has imported what they import.

To start Python and import its libraries takes `analyze` 0.5 s of CPU, and a training with torch 4 s: more than the
rest of most tests. A forked process has all that is its own: arguments, variables, folder, streams, signals and exit
code. What it shares with its like is how Python started; so a command with other variables than those that the programs
here read later (SEEN_LATER) gets a Python of its own, and tests of what is imported at start make theirs.

Programs that such a command starts are forked as well, where torch was imported: what Python does at its start is done
again (its path, sitecustomize), and their `import torch` goes the whole way through Python's import system.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import gc
import importlib
import inspect
import json
import locale
import os
import runpy
import select
import shlex
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn, Self

SEEN_LATER = (
    "COLUMNS", "LINES", "NO_COLOR", "TERM", "TRACEQUARRY_", "TMPDIR", "PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR",
)  # fmt: skip
"""Variables that nothing reads while it is imported, or what they begin with.

torchvision sets the last one where it is imported, so also in a process of the tests.
"""


class Template:
    """Starts Python under the present variables and these, has it import modules, and forks commands from it."""

    def __init__(self, modules: str, **variables: str):
        self._modules = modules.split()
        self._environment = {**os.environ, **variables}

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether a process forked here is as one that started under these variables."""
        names = {*self._environment, *environment}
        differ = [name for name in names if self._environment.get(name) != environment.get(name)]
        seen_later = (name.startswith(SEEN_LATER) and name != "TRACEQUARRY_COMPILED" for name in differ)
        return sys.platform == "linux" and all(seen_later)

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path | None = None,
        streams: Sequence[int] = (),
        piped: bool = False,
    ) -> Forked:
        """`python ARGUMENTS` by a forked process; its streams are these files, by default what `communicate` gives, or
        pipes to read from while it works."""
        return Forked(self._server, arguments, environment, cwd, streams, piped)

    def in_shell(self) -> tuple[str, int]:
        """What stands for `python` in a shell, whose streams are then its, and the file that the shell must inherit."""
        fd = self._server.fileno()
        asks = [sys.executable, "-IS", str(Path(__file__).with_name("ask_forked.py")), str(fd)]
        return shlex.join(asks), fd

    @functools.cached_property
    def _server(self) -> socket.socket:
        """The way to the process that has imported the modules; it ends with this one."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(its.fileno()), *self._modules]
        subprocess.Popen(command, pass_fds=[its.fileno()], env=self._environment, stdin=subprocess.DEVNULL)
        its.close()
        return ours


class Forked:
    """A command; the part of subprocess.Popen that tests use."""

    def __init__(
        self,
        server: socket.socket,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path | None,
        streams: Sequence[int] = (),
        piped: bool = False,
    ):
        self.args = list(arguments)
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self._output: list[IO[bytes]] = [
            tempfile.TemporaryFile()  # noqa: SIM115
            for _ in (() if streams or piped else ("stdout", "stderr"))
        ]
        self._told, its = socket.socketpair()
        nothing = os.open(os.devnull, os.O_RDONLY)
        written = []
        if piped:
            (out, out_end), (err, err_end) = os.pipe(), os.pipe()
            self.stdout, self.stderr = os.fdopen(out), os.fdopen(err)
            written = [out_end, err_end]
        fds = [*(streams or (nothing, *(written or (f.fileno() for f in self._output)))), its.fileno()]
        job = {"arguments": self.args, "cwd": str(cwd or Path.cwd()), "environment": dict(environment)}
        socket.send_fds(server, [json.dumps(job).encode()], fds)
        for fd in (nothing, *written):
            os.close(fd)
        its.close()
        self.pid = self._next()

    def _next(self) -> int:
        """The next number that the process beside it tells: its pid, then how it ended."""
        if len(told := self._told.recv(4)) < 4:
            raise RuntimeError("the process that commands are forked from is gone")
        return array.array("i", told)[0]

    def wait(self, timeout: float | None = None) -> int:
        """As subprocess.Popen.wait."""
        if self.returncode is None:
            self._told.settimeout(timeout)
            try:
                self.returncode = os.waitstatus_to_exitcode(self._next())
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._told.close()
        return self.returncode

    def poll(self) -> int | None:
        """As subprocess.Popen.poll."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """As subprocess.Popen.communicate, as text."""
        if self.stdout and self.stderr:
            said = self.stdout.read(), self.stderr.read()
            self.wait(timeout)
            return said
        self.wait(timeout)
        for file in self._output:
            file.seek(0)
        out, err = (file.read().decode() for file in self._output)
        for file in self._output:
            file.close()
        return out, err

    def send_signal(self, number: int) -> None:
        """As subprocess.Popen.send_signal."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ends just now
                os.kill(self.pid, number)

    def kill(self) -> None:
        """As subprocess.Popen.kill."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for pipe in filter(None, (self.stdout, self.stderr)):
            pipe.close()
        self.wait()


def _serve(jobs: socket.socket) -> dict[str, Any]:
    """Fork a process for each job and tell its number, and how it ended; returns the job in that process. This one
    exits when no more can come."""
    told: dict[int, socket.socket] = {}
    ended, at_end = socket.socketpair()
    for end in (ended, at_end):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(at_end.fileno())
    while True:
        ready, _, _ = select.select([jobs, ended], [], [])
        if ended in ready:
            ended.recv(4096)
            while told and (found := os.waitpid(-1, os.WNOHANG))[0]:
                with told.pop(found[0]) as whom:
                    _tell(whom, found[1])
        if jobs in ready:
            message, fds, _, _ = socket.recv_fds(jobs, 1 << 20, 4)
            if not message:
                os._exit(0)
            if not (pid := os.fork()):
                break
            told[pid] = socket.socket(fileno=fds.pop())
            _tell(told[pid], pid)
            for fd in fds:
                os.close(fd)
    signal.set_wakeup_fd(-1)
    for open_here in (jobs, ended, at_end, *told.values()):
        open_here.close()
    os.close(fds.pop())
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    job: dict[str, Any] = json.loads(message)
    return job


def _tell(whom: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # who does not wait for it
        whom.send(array.array("i", [number]).tobytes())


def _become(job: Mapping[str, Any]) -> Callable[[], object]:
    """Make this process what Python would be at the start of `python ARGUMENTS`; returns what that is to run."""
    before = _python_path()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["cwd"])
    tempfile.tempdir = None
    flags, (first, *others) = _flags(job["arguments"])
    streams = (
        ("stdin", "r", sys.stdin.errors),
        ("stdout", "w", sys.stdout.errors),
        ("stderr", "w", "backslashreplace"),
    )
    for fd, (name, mode, errors) in enumerate(streams):
        buffering = 1 if name == "stderr" or "-u" in flags else -1
        stream: Any = open(fd, mode, buffering, locale.getencoding(), errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.orig_argv = [sys.executable, *job["arguments"]]
    sys.path[1:] = [*_python_path(), *(p for p in sys.path[1:] if p not in before)]
    subprocess.Popen._execute_child = _fork_child  # type: ignore[attr-defined]
    if first == "-m":
        module, sys.path[0] = others[0], job["cwd"]
        Path("/proc/self/comm").write_text(module)  # its command line is that of the process that it was forked from
        sys.argv = ["-m", *others[1:]]
        if "-P" in flags:
            del sys.path[0]
        if not _is_ours(module):
            _start_as_python()
        return lambda: runpy.run_module(module, run_name="__main__", alter_sys=True)
    main = sys.modules["__main__"] = ModuleType("__main__")
    if first == "-c":
        name, sys.path[0] = "<string>", ""
        text, *others = others
    else:
        name, sys.path[0] = first, str(Path(first).resolve().parent)
        text, main.__file__ = Path(first).read_text("utf-8"), first
    sys.argv = [first, *others]
    _start_as_python()
    return lambda: exec(compile(text, name, "exec"), main.__dict__)


def _flags(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split arguments of Python into those of its options that are known here, and what it is to run."""
    count = next(n for n, argument in enumerate(arguments) if argument not in ("-u", "-P"))
    return arguments[:count], arguments[count:]


def _is_ours(module: str) -> bool:
    return module.split(".")[0] in ("analyze", "collect")


def _python_path() -> list[str]:
    return [str(Path(p).absolute()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]


class _Again(MetaPathFinder, Loader):
    """Has a program import a module that is there: hooks that wait for its import see it."""

    def __init__(self, name: str) -> None:
        self._module = sys.modules.pop(name)
        self._spec = self._module.__spec__

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self._module.__name__:
            return None
        spec = ModuleSpec(name, self, origin=self._module.__file__, is_package=True)
        spec.submodule_search_locations = list(self._module.__path__)
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


_finders = [*sys.meta_path]
"""How modules are found before a program's sitecustomize has a say."""


def _torch_again() -> list[_Again]:
    """What has a program import torch, if that was imported."""
    return [_Again("torch")] if "torch" in sys.modules else [f for f in sys.meta_path if isinstance(f, _Again)]


def _start_as_python() -> None:
    """What Python does before a program, for one that has not imported torch."""
    sys.meta_path[:] = [*_torch_again(), *_finders]
    sys.modules.pop("sitecustomize", None)
    site.execsitecustomize()


def _arguments(command: Sequence[str]) -> list[str]:
    """Those of Python, if a command that this process starts is a program of it, to be forked from it, too; else
    none."""
    if "torch" not in sys.modules and not any(isinstance(f, _Again) for f in sys.meta_path):
        return []
    if _is_script(command[0]):
        return [*command]
    if command[0] != sys.executable:
        return []
    first, *others = _flags(command[1:])[1]
    if first == "-m":
        forked = _is_ours(others[0]) or others[0] == "torch.distributed.run"
    else:
        forked = first == "-c" or first.endswith(".py")
    return [*command[1:]] if forked else []


def _is_script(path: str) -> bool:
    """Whether a file says itself that it is run by this Python."""
    try:
        with Path(path).open("rb") as file:
            return file.readline() == f"#!{sys.executable}\n".encode()
    except OSError:
        return False


_start_child = subprocess.Popen._execute_child  # type: ignore[attr-defined]


def _fork_child(self: subprocess.Popen[Any], *arguments: Any) -> None:
    """In its place: fork for Python's programs from this process, which has imported torch."""
    given = inspect.signature(_start_child).bind(self, *arguments).arguments
    python = _arguments(list(given["args"]))
    if not python:
        _start_child(self, *arguments)
        return
    pipes = [given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
    sys.stdout.flush()
    self.pid = os.fork()
    if self.pid:
        self._child_created = True  # type: ignore[attr-defined]
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        return
    if given["start_new_session"]:
        os.setsid()
    fds = [os.dup(fd if fd >= 0 else standard) for standard, fd in enumerate((pipes[0], pipes[3], pipes[5]))]
    for standard, fd in enumerate(fds):
        os.dup2(fd, standard)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    # What its parent tidies up when it ends is the parent's.
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    environment = dict(os.environ if given["env"] is None else given["env"])
    _run(_become({"arguments": python, "cwd": str(given["cwd"] or Path.cwd()), "environment": environment}))


def _run(program: Callable[[], object]) -> NoReturn:
    """Run it; end as Python does, but do not take apart what was imported."""
    code: object = 0
    try:
        program()
    except SystemExit as e:
        code = e.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    listening = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    for name in sys.argv[2:]:
        with contextlib.suppress(ImportError):  # a module of a library that another version of it has not
            importlib.import_module(name)
    # Signals for the group are for the commands.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _finders[:] = sys.meta_path
    gc.freeze()
    gc.enable()
    _run(_become(_serve(listening)))
