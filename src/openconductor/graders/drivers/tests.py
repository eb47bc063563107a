"""Runs a test program against an answer that is in another process: the trusted side.

Nothing of the answer runs here. The function under test is replaced by one that sends its arguments
to the answer's process and makes the returned value anew (``unpacking``). So all assertions are
judged here, on values of ours. ``unpacking`` and ``cases`` stand before this text.

What is sent to the answer's process: arguments of the function, the names of attributes and methods
of the objects that it returned, the state of ``random`` and the working folder. So that nothing can
be compared there, a method whose name plain values have takes no arguments.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
from __future__ import annotations

import ast
import builtins
import io
import json
import os
import pickle
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from openconductor.graders.drivers.cases import (
        execute,
        run_cases,
        run_plain_tests,
        tests_of,
    )
    from openconductor.graders.drivers.unpacking import (
        JUDGES,
        SENT_WHOLE,
        Forged,
        class_of,
        unpack,
        unpack_error,
    )

REQUESTS, REPLIES = 4, 5
LONGEST = 1 << 28
"""Bytes of a reply; a longer one is no reply."""


def judge() -> dict[str, str]:
    """Run the test program that is on standard input; return its fault, or ""."""
    task = json.load(sys.stdin)
    link = Link()
    try:
        fault = run_tests(link, task["given"], task["tests"], task["entry_point"])
    except BaseException as error:  # noqa: BLE001 - also SystemExit, claimed by the answer
        fault = f"failed {type(error).__name__}: {error}"[:300]
    return {"fault": link.fault or fault}


def run_tests(link: Link, given: str, tests: str, entry_point: str) -> str:
    """Run a test program; return its first fault, or "".

    Args:
        link: leads to the answer.
        given: what the problem's text defines beside the function: imports, constants, helpers.
        tests: the test program.
        entry_point: the function under test.
    """
    tree = ast.parse(tests)
    given_tree = ast.parse(given)
    link.mirror_figures()
    # The answer may use what the tests import: the official runner makes one module of both.
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    if not link.ask("start", "\n".join(map(ast.unparse, imports))):
        return f"failed: the program has no {entry_point}"
    module = sys.modules["__test__"] = ModuleType("__test__")
    space = module.__dict__
    space.update(__builtins__=builtins, __file__="__test__.py")
    execute(given_tree, space)

    def entry(*arguments: Any, **keywords: Any) -> Any:
        return link.call(arguments, keywords)

    entry.__name__ = entry.__qualname__ = entry_point
    space[entry_point] = entry
    execute(tree, space)
    cases = tests_of(tree)
    run_plain_tests(tree, space)
    if cases:
        return run_cases(space, cases)
    if "check" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
        space["check"](entry)
    return ""


class Link:
    """The way to the answer's process.

    Attributes:
        fault: how the answer broke it; "" if it is whole. It is kept, whatever the tests catch.
    """

    def __init__(self) -> None:
        self.fault = ""
        self._requests = io.FileIO(REQUESTS, "w")
        self._replies = io.BufferedReader(io.FileIO(REPLIES))
        self._remotes: dict[int, Remote] = {}
        self._given: list[Any] = []
        self._random = random_states()
        self._stdout = sys.stdout

    def ask(self, operation: str, *operands: Any) -> Any:
        """Send a request; return the value of its reply.

        Raises:
            BaseException: what the answer raised, as an exception of this process.
            Forged: the answer's process ended, or replied what is no reply.
        """
        reply = self._exchange((operation, *operands))
        return self._take(reply)

    def call(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call the function under test."""
        states = random_states()
        changed = {name: state for name, state in states.items() if self._random.get(name) != state}
        self._random = states
        state = {
            "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes 10 ms to import
            "random": {name: pickle.loads(text) for name, text in changed.items()},  # noqa: S301 - ours
            "capture": sys.stdout is not self._stdout,
        }
        outer, self._given = self._given, [*arguments, *keywords.values()]
        try:
            reply = self._exchange(("call", arguments, keywords, state))
            if state["capture"] and isinstance(reply.get("printed"), str):
                sys.stdout.write(reply["printed"])
            self._change_arguments(reply.get("changed", ()))
            return self._take(reply)
        finally:
            self._given = outer

    def mirror_figures(self) -> None:
        """Close the answer's figures, too, where the tests close pyplot's."""
        pyplot: Any = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        close_here = pyplot.close

        def close(*figures: Any) -> None:
            self.ask("close", *figures)
            if not any(type(figure) is Remote for figure in figures):
                close_here(*figures)

        pyplot.close = close

    def handle(self, number: int, names: Any) -> Remote:
        """Return the handle of an object of the answer's."""
        if number not in self._remotes:
            kind = class_of(names, object, JUDGES | SENT_WHOLE) or object
            self._remotes[number] = Remote(self, int(number), kind)
        return self._remotes[number]

    def iterator(self, number: int) -> Iterator[Any]:
        """Return a generator of the items of an iterator of the answer's."""
        number = int(number)
        while True:
            reply = self._exchange(("step", number))
            if reply.get("end"):
                return
            yield self._take(reply)

    def argument(self, place: int) -> Any:
        """Return an argument of the call under way."""
        return self._given[place]

    def _change_arguments(self, changed: Any) -> None:
        try:
            for place, tree in changed:
                overwrite(self._given[place], unpack(tree, self))
        except Exception as error:
            raise self._broken(f"an argument that cannot change so: {error}") from error

    def _exchange(self, request: tuple[Any, ...]) -> dict[str, Any]:
        if self.fault:
            raise Forged(self.fault)
        content = io.BytesIO()
        pickler = Pickler(content)
        pickler.dump(request)
        message = content.getbuffer()
        try:
            self._send(len(message).to_bytes(8, "little"))
            self._send(message)
            reply: Any = json.loads(self._replies.readline(LONGEST))
        except (OSError, ValueError, RecursionError):
            reply = None
        if type(reply) is not dict:
            raise self._broken("the answer's process ended, or sent what is no reply")
        return reply

    def _send(self, content: Any) -> None:
        view = memoryview(content)
        while view:
            view = view[self._requests.write(view) :]

    def _take(self, reply: dict[str, Any]) -> Any:
        """Return the value of a reply, or raise its error."""
        if reply.get("method") is True:
            return METHOD
        try:
            if "error" not in reply:
                return unpack(reply.get("value"), self)
            error = unpack_error(reply["error"], self)
        except Exception as fault:
            raise self._broken(f"a value that cannot be one: {fault}") from fault
        raise error

    def _broken(self, fault: str) -> Forged:
        """Keep how the answer broke the link; return the error to raise."""
        self.fault = f"no_verdict: {fault}"
        return Forged(self.fault)


class Pickler(pickle.Pickler):
    """Writes what is sent to the answer: values as they are, handles by their number."""

    def persistent_id(self, value: object) -> int | None:
        """Return the number of a handle; None: pickle the value."""
        return value.number_there if type(value) is Remote else None


METHOD = object()


class Remote:
    """An object that stayed in the answer's process.

    It compares by identity. It has the attributes and methods that the object there has, but none
    of Python's own (``__eq__``, ``__len__`` …).
    """

    __slots__ = ("kind_there", "link_there", "number_there")

    def __init__(self, link: Link, number: int, kind: type) -> None:
        self.link_there = link
        self.number_there = number
        self.kind_there = kind

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The class that the object claims; ``isinstance`` asks for it."""
        return self.kind_there

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        link, number = self.link_there, self.number_there
        value = link.ask("get", number, name)
        if value is not METHOD:
            return value

        def method(*arguments: Any, **keywords: Any) -> Any:
            if (arguments or keywords) and name in plain_names():
                raise TypeError(f"{name} of what the answer returned takes no arguments here")
            return link.ask("use", number, name, arguments, keywords)

        return method

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the object there."""
        return self.link_there.ask("use", self.number_there, "", arguments, keywords)


def plain_names() -> set[str]:
    """Return the names of attributes that values of the kinds sent whole have."""
    names: set[str] = set()
    for module in SENT_WHOLE:
        kinds: list[Any] = list(vars(sys.modules.get(module, builtins)).values())
        for kind in kinds:
            if isinstance(kind, type) and not issubclass(kind, BaseException):
                names.update(dir(kind))  # pyright: ignore[reportUnknownArgumentType]
    return names


def random_states() -> dict[str, bytes]:
    """Return the states of the random generators that are loaded, by module."""
    states: dict[str, bytes] = {}
    random: Any = sys.modules.get("random")
    if random is not None:
        states["random"] = pickle.dumps(random.getstate())
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        states["numpy.random"] = pickle.dumps(numpy_random.get_state())
    return states


def overwrite(old: Any, new: Any) -> None:
    """Give an argument the value that the function left it with."""
    kind: Any = type(old)
    if kind is not type(new):
        raise Forged("an argument of another type")
    if kind.__module__.startswith("pandas"):
        vars(old).update(vars(new))
    elif kind.__module__ == "numpy":
        old[...] = new
    else:
        old.clear()
        if hasattr(kind, "extend"):
            old.extend(new)
        else:
            old.update(new)
