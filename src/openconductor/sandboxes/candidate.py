"""The process of one run inside a sandbox: it becomes a plain Python process and executes the program.

In: the set-up, a run, and the inner ends of its pipes. Out: the program's own output; for calls
also a line of tagged JSON each, on descriptor 3. The text of this file is sent into the sandbox,
beside ``supervisor``. From the program on, nothing in this process can be trusted: it may change
every function here, and all that it can gain is to lie about its own value.
"""

# No ``from __future__``, which the program would inherit; no ``typing``, ``pathlib`` or ``signal``:
# each costs milliseconds to import, in every sandbox.

import atexit
import builtins
import gc
import posix as os
import resource
import sys

from openconductor.sandboxes.encoding import NotPlain, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REPLY = 3
STACK_BYTES = 64 << 20
PR_SET_DUMPABLE = 4
LEFT_TO_THE_END = ("open(", "Wrapper", "Buffered", "__del__")
"""What a program's text holds if it may have buffers of its own, or say something when its objects go."""
NOT_PLAIN = 97
"""The exit code of a call that returned what is no plain value."""


def be_candidate(setup: "dict[str, Any]", run: "dict[str, Any]", pipes: list[int]) -> None:
    """Turn this freshly forked process into the program's. Never returns.

    Raises:
        SystemExit: so that Python ends as it would by itself; only where the program may have left
            something to that.
    """
    code, slowly, program = 1, False, setup["program"]
    try:
        become_plain(setup, pipes)
        if run["entry_point"] is None:
            code = execute(program, "__main__")
            slowly = any(word in program for word in LEFT_TO_THE_END)
            code = code if slowly else finish(code)
        else:
            code = execute(program, "program") or call(run["entry_point"], run["calls"])
    finally:
        if not slowly:
            os._exit(code)  # pyright: ignore[reportPrivateUsage]  # taking everything apart would cost 2 ms a run
    raise SystemExit(code)


def become_plain(setup: "dict[str, Any]", pipes: list[int]) -> None:
    """A session, descriptors, limits and a ``sys`` like those of a Python that was started with the program."""
    os.setsid()
    # The pipes may have been given low numbers: they are moved out of the way first.
    for number, descriptor in enumerate(
        [os.dup2(pipe, 60 + index) for index, pipe in enumerate(pipes)]
    ):
        os.dup2(descriptor, number, inheritable=number < REPLY)
    os.closerange(REPLY + 1, 4096)
    if (
        sys.platform == "linux"
    ):  # let process 1 see how much memory it shares; else all of it would count twice
        os.register_at_fork(before=lambda: prctl(PR_SET_DUMPABLE, 1))
    lower(resource.RLIMIT_AS, setup["memory_mb"] * 2 << 20)
    lower(resource.RLIMIT_CPU, int(setup["cpu_s"]) + 2)
    signals: Any = __import__("_signal")
    signals.signal(signals.SIGINT, signals.default_int_handler)
    gc.enable()
    sys.argv = ["program.py"]
    sys.orig_argv = [sys.executable, "program.py"]
    sys.path.insert(0, setup["scratch"])
    for name in [name for name in sys.modules if name.startswith("openconductor")]:
        del sys.modules[name]


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


def call(entry: str, calls: "list[tuple[Any, Any, bool]]") -> int:
    """Call a function of the program, and write what it returned to descriptor 3; the exit code.

    The function is the method of ``Class.method``; else the method of a class ``Solution``, else
    the function of the module, in this order, for ``from operator import *`` may have brought a
    function of the same name.
    """
    try:
        names = vars(sys.modules["program"])
        owner, _, method = entry.rpartition(".")
        if not owner and hasattr(names.get("Solution"), entry):
            owner = "Solution"
        function = getattr(names[owner](), method) if owner else names[entry]
        replies = ""
        for positional, keywords, truth in calls:
            value = function(*positional, **keywords)
            replies += encode(bool(value) if truth else value) + "\n"
        view = memoryview(replies.encode())
        while view:
            view = view[os.write(REPLY, view) :]
        code = 0
    except NotPlain as error:
        sys.stderr.write(f"the call returned {error}\n")
        code = NOT_PLAIN
    except BaseException:  # noqa: BLE001 - a user's own function
        code = report() or NOT_PLAIN
    flush()
    return code


def execute(program: str, name: str) -> int:
    """Execute a program as a fresh module of that name; the exit code, 0 where it did not end by itself."""
    module = type(sys)(name)
    module.__dict__.update(__builtins__=builtins, __file__="program.py")
    sys.modules[name] = module
    try:
        # From text: ``compile`` would make the classes of every kind of syntax node, 1 ms in each
        # process.
        exec(program, module.__dict__)  # noqa: S102 - what a sandbox is for
    except BaseException:  # noqa: BLE001 - a user's own function
        return report()
    return 0


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
    """The system call of that name; ``ctypes``, of which this is the part that is needed, would take 3 ms to import.

    Raises:
        OSError: the kernel refused.
    """
    ctypes: Any = __import__("_ctypes")

    class Function(ctypes.CFuncPtr):
        _flags_ = ctypes.FUNCFLAG_CDECL
        _restype_ = int

    if Function(ctypes.dlsym(ctypes.dlopen(None, 0), "prctl"))(option, value, 0, 0, 0) != 0:
        raise OSError(f"prctl({option}, {value}) failed")
