"""The process of one run inside a sandbox: it becomes a plain Python process and runs the program.

The program writes its own output; calls also write a line of tagged JSON each, on descriptor 3. The
text of this file is sent into the sandbox, beside ``supervisor``. Once the program runs, nothing in
this process can be trusted: it may change every function here, and all that it can gain is to lie
about its own value.
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
MOVED = 50  # below the limit on descriptors
STACK_BYTES = 64 << 20
PR_SET_DUMPABLE = 4
# Words of a program that may have buffers of its own, or print when its objects are deleted.
LEFT_TO_THE_END = ("open(", "Wrapper", "Buffered", "__del__")
NOT_PLAIN = 97  # exit code of a call that returned a value that is not plain


def be_candidate(setup: "dict[str, Any]", run: "dict[str, Any]", pipes: list[int]) -> None:
    """Turn this freshly forked process into the program's. Never returns.

    Raises:
        SystemExit: so that Python ends as it would by itself, for programs of which a part may run
            then (``LEFT_TO_THE_END``).
    """
    code = 1
    slowly = False
    program = setup["program"]
    try:
        become_plain(setup, pipes)
        judge = run["judge"]
        if judge is not None and part_from_program():
            program = judge["program"]
            run = {"entry_point": judge["entry_point"], "calls": [((), {}, False)]}
        else:
            become_untrusted(setup["scratch"])
        if run["entry_point"] is None:
            code = execute(program, "__main__")
            slowly = any(word in program for word in LEFT_TO_THE_END)
            if not slowly:
                code = finish(code)
        else:
            code = execute(program, "program") or call(run["entry_point"], run["calls"])
    finally:
        if not slowly:  # a whole end of Python would cost 2 ms a run
            os._exit(code)  # pyright: ignore[reportPrivateUsage]
    raise SystemExit(code)


def become_plain(setup: "dict[str, Any]", pipes: list[int]) -> None:
    """Take the session, descriptors, limits and ``sys`` of a Python started with the program."""
    os.setsid()
    arrange(dict(enumerate(pipes)))
    lower(resource.RLIMIT_AS, setup["memory_mb"] * 2 << 20)
    lower(resource.RLIMIT_CPU, int(setup["cpu_s"]) + 2)
    gc.enable()
    sys.argv = ["program.py"]
    sys.orig_argv = [sys.executable, "program.py"]
    for name in [name for name in sys.modules if name.startswith("openconductor")]:
        del sys.modules[name]


def become_untrusted(scratch: str) -> None:
    """Take what only the program's process has: imports from its folder, an interrupt's handler."""
    if sys.platform == "linux":
        # Process 1 must see how much memory is shared, or all of it would count twice.
        os.register_at_fork(before=lambda: prctl(PR_SET_DUMPABLE, 1))
    signals: Any = __import__("_signal")
    signals.signal(signals.SIGINT, signals.default_int_handler)
    sys.path.insert(0, scratch)


def part_from_program() -> bool:
    """Fork, with a pipe each way; return True in the judge's process, False in the program's.

    The judge's stays hidden (not dumpable), keeps standard input and the pipe to process 1, and
    imports nothing from the folder that the program writes to.
    """
    null = os.open("/dev/null", os.O_RDWR)
    questions, ask = os.pipe()
    answers, tell = os.pipe()
    if os.fork():
        arrange({0: 0, 1: null, 2: 2, REPLY: REPLY, 4: ask, 5: answers})
        return True
    arrange({0: null, 1: 1, 2: 2, REPLY: tell, 4: questions})
    return False


def arrange(descriptors: dict[int, int]) -> None:
    """Give descriptors the numbers that they are listed under, and close all others."""
    # They may have numbers of the list, so they are moved out of the way first.
    for number, descriptor in descriptors.items():
        os.dup2(descriptor, MOVED + number)
    for number in descriptors:
        os.dup2(MOVED + number, number, inheritable=number < REPLY)
    os.closerange(max(descriptors) + 1, 4096)


def finish(code: int) -> int:
    """Do what matters of Python's end: threads, atexit, buffers. Return the exit code."""
    threading = sys.modules.get("threading")
    try:
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - it has no other name
    except BaseException:  # noqa: BLE001 - a user's own function
        code = report() or code
    return flush() or code


def call(entry: str, calls: "list[tuple[Any, Any, bool]]") -> int:
    """Call a function of the program, and write its values to descriptor 3; return the exit code.

    The function is the method of ``Class.method``, or else the method of a class ``Solution``, or
    else the function of the module. The module comes last, because ``from operator import *`` may
    have brought a function of the same name.
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
    """Execute a program as a fresh module of that name; return the exit code."""
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
    """Show the current exception as Python would; return the exit code that it means."""
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
    """Write out buffers; return 0, or 120 if that fails, as in Python."""
    code = 0
    for stream in dict.fromkeys((sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError, AttributeError):
            code = 120
    return code


def lower(name: int, value: int) -> None:
    """Set a limit for good, or keep a hard limit that is lower already."""
    hard = resource.getrlimit(name)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    try:
        resource.setrlimit(name, (value, value))
    except (OSError, ValueError):
        if sys.platform == "linux":
            raise


def prctl(option: int, value: int) -> None:
    """Make the system call of that name. All of ``ctypes`` would take 3 ms to import.

    Raises:
        OSError: the kernel refused.
    """
    ctypes: Any = __import__("_ctypes")

    class Function(ctypes.CFuncPtr):
        _flags_ = ctypes.FUNCFLAG_CDECL
        _restype_ = int

    if Function(ctypes.dlsym(ctypes.dlopen(None, 0), "prctl"))(option, value, 0, 0, 0) != 0:
        raise OSError(f"prctl({option}, {value}) failed")
