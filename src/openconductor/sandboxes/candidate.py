"""The process of one run inside a sandbox: it becomes a plain Python process and executes the program.

In: the set-up, a run, and the inner ends of its pipes. Out: the program's own output; for a call also the encoded
value, on descriptor 3. The text of this file is sent into the sandbox, beside ``encoding`` and ``supervisor``. From the
program on, nothing in this process can be trusted: it may change every function here, and all that it can gain is to
lie about its own value.
"""

# ``pathlib`` would take 10 ms to import, in every sandbox.

import atexit
import builtins
import gc
import marshal
import posix as os
import resource
import sys

from openconductor.sandboxes.encoding import NotPlain, decode, encode

TYPE_CHECKING = False  # ``typing`` itself would take 3 ms to import, in every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SIGNALS: "Any" = __import__("_signal")
"""What ``signal`` makes enumerations of, which would take 3 ms to import."""
SIGINT, SIGKILL = 2, 9
REPLY = 3
STACK_BYTES = 64 << 20
PR_SET_DUMPABLE = 4
LEFT_TO_THE_END = ("open(", "Wrapper", "Buffered", "__del__")
"""What a program's text holds if it may have buffers of its own, or say something when its objects go."""
NOT_PLAIN = 97
"""The exit code of a call that returned what is no plain value."""


class Setup:
    """What the process outside says first: the program, its limits, and where it is to run."""

    program: "str | bytes"
    preload: list[str]
    paths: list[str]
    scratch: str
    private: bool
    uid: int | None
    count_processes: bool
    cpu_us: int
    wall_us: int
    memory_mb: int
    output_bytes: int
    file_mb: int
    processes: int

    def __init__(self, frame: dict[str, object]) -> None:
        self.__dict__.update(frame)


class Asked:
    """What it says for each run."""

    stdin: bytes
    call: tuple[str, bytes, bool] | None

    def __init__(self, frame: dict[str, object]) -> None:
        self.__dict__.update(frame)


def be_candidate(setup: Setup, run: Asked, pipes: list[int]) -> None:
    """Turn this freshly forked process into the program's. Never returns.

    Raises:
        SystemExit: so that Python ends as it would by itself; only where the program may have left something to that.
    """
    code = 1
    slowly = False
    try:
        become_plain(setup, pipes)
        if run.call is None:
            code = execute(setup.program, "__main__")
            slowly = any(word in str(setup.program) for word in LEFT_TO_THE_END)
            code = code if slowly else finish(code)
        else:
            code = call(setup.program, *run.call)
    finally:
        if not slowly:
            os._exit(code)  # pyright: ignore[reportPrivateUsage]  # taking everything apart would cost 2 ms a run
    raise SystemExit(code)


def become_plain(setup: Setup, pipes: list[int]) -> None:
    """A session, descriptors, limits and a ``sys`` like those of a Python that was started with the program."""
    os.setsid()
    # The pipes may have been given low numbers: they are moved out of the way first.
    for number, descriptor in enumerate([os.dup2(pipe, 60 + index) for index, pipe in enumerate(pipes)]):
        os.dup2(descriptor, number, inheritable=number < REPLY)
    os.closerange(REPLY + 1, 4096)
    if sys.platform == "linux":
        os.register_at_fork(before=be_weighed)
    lower(resource.RLIMIT_AS, setup.memory_mb * 2 << 20)
    seconds = setup.cpu_us // 1_000_000 + 2
    lower(resource.RLIMIT_CPU, seconds)
    SIGNALS.signal(SIGINT, SIGNALS.default_int_handler)
    gc.enable()
    sys.argv = ["program.py"]
    sys.path.insert(0, setup.scratch)
    sys.orig_argv = [sys.executable, "program.py"]
    for name in [name for name in sys.modules if name.startswith("openconductor")]:
        del sys.modules[name]


def be_weighed() -> None:
    """Before it forks: let process 1 see how much of its memory it shares; else all of it would count twice."""
    prctl(PR_SET_DUMPABLE, 1)


def finish(code: int) -> int:
    """What Python does at the end of a script that is worth its time: threads, atexit, buffers; the exit code."""
    threading = sys.modules.get("threading")
    try:
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - it has no other name
    except BaseException:  # noqa: BLE001 - a user's own function
        code = report() or code
    return flush() or code


def call(program: "str | bytes", entry: str, arguments: bytes, truth: bool) -> int:
    """Import a program, call one of its functions and write the encoded value to descriptor 3; the exit code."""
    code = execute(program, "program")
    if code:
        return code
    try:
        function = find(sys.modules["program"].__dict__, entry)
        given: Any = decode(arguments)
        several = arguments.startswith(b"l")  # a list
        calls: list[Any] = given if several else [given]
        replies: list[bytes] = []
        for positional, keywords in calls:
            value = function(*positional, **keywords)
            replies.append(encode(bool(value) if truth else value))
        reply = encode(replies) if several else replies[0]
        view = memoryview(len(reply).to_bytes(4, "little") + reply)
        while view:
            view = view[os.write(REPLY, view) :]
    except NotPlain as error:
        sys.stderr.write(f"the call returned {error}\n")
        code = NOT_PLAIN
    except BaseException:  # noqa: BLE001 - a user's own function
        code = report() or NOT_PLAIN
    flush()
    return code


def execute(program: "str | bytes", name: str) -> int:
    """Execute a program as a fresh module of that name; the exit code, 0 where it did not end by itself."""
    module = type(sys)(name)
    module.__dict__.update(__builtins__=builtins, __file__="program.py")
    sys.modules[name] = module
    try:
        # From text: ``compile`` would make the classes of every kind of syntax node, 1 ms in each process. This file
        # has no ``from __future__``, which the program would inherit.
        code = marshal.loads(program) if isinstance(program, bytes) else program  # noqa: S302 - from outside
        exec(code, module.__dict__)  # noqa: S102 - what a sandbox is for
    except BaseException:  # noqa: BLE001 - a user's own function
        return report()
    return 0


def find(namespace: "dict[str, Any]", entry: str) -> "Any":
    """The bound method of ``Class.method``; else the method of a class ``Solution``, else the function of a module.

    In this order, for ``from operator import *`` may have brought a function of the same name.
    """
    owner, _, method = entry.rpartition(".")
    if not owner and hasattr(namespace.get("Solution"), entry):
        owner = "Solution"
    return getattr(namespace[owner](), method) if owner else namespace[entry]


def report() -> int:
    """Show the exception at hand as Python would; the exit code that it means."""
    kind, error, trace = sys.exc_info()
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        sys.stderr.write(f"{error.code}\n")
        return 1
    trace = trace and trace.tb_next  # without the frame of this file
    sys.excepthook(kind, error and error.with_traceback(trace), trace)  # type: ignore[arg-type]
    return 1


def flush() -> int:
    """Write out what is buffered; 120 where that fails, as in Python."""
    code = 0
    for stream in dict.fromkeys((sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError, AttributeError):
            code = 120
    return code


def set_limits(setup: Setup) -> None:
    """The limits that hold for every process inside, process 1 too."""
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_FSIZE, setup.file_mb << 20)
    lower(resource.RLIMIT_NOFILE, 64)
    lower(resource.RLIMIT_STACK, STACK_BYTES)
    lower(resource.RLIMIT_MEMLOCK, 0)
    if setup.count_processes:
        lower(resource.RLIMIT_NPROC, setup.processes + 1)
    if hasattr(resource, "RLIMIT_MSGQUEUE"):
        lower(resource.RLIMIT_MSGQUEUE, 0)


def lower(name: int, value: int) -> None:
    """Set a limit for good, or to the hard limit where that is lower already."""
    hard = resource.getrlimit(name)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(name, (value, value))
    except (OSError, ValueError):
        if sys.platform == "linux":
            raise


def prctl(option: int, value: int) -> None:
    """The system call of that name.

    Raises:
        OSError: the kernel refused.
    """
    if not _PRCTL:
        _PRCTL.append(_load("prctl"))
    if _PRCTL[0](option, value, 0, 0, 0) != 0:
        raise OSError(f"prctl({option}, {value}) failed")


_PRCTL: "list[Callable[[int, int, int, int, int], int]]" = []


def _load(name: str) -> "Any":
    """A function of the C library. ``ctypes`` would take 3 ms to import; this is the part of it that is needed."""
    _ctypes: Any = __import__("_ctypes")

    class Int(_ctypes._SimpleCData):
        _type_ = "i"

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = Int

    return Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), name))
