"""Serves an answer's function to the process that runs its tests (``tests``).

The answer may change everything here, and write what it likes to every descriptor. All that it can
gain is to lie about its own values, since nothing else leaves this process and the tests do not
enter it. Requests come on descriptor 4, as a length and a pickle of the trusted side. Replies go to
descriptor 3, as a line of JSON each. ``packing`` stands before this text.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import pickle
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from openconductor.graders.drivers.packing import Packer

REPLIES, REQUESTS = 3, 4
CHANGEABLE = {
    "builtins": ("list", "dict", "set", "bytearray"),
    "collections": ("deque",),
    "numpy": ("ndarray",),
    "pandas": ("DataFrame", "Series"),
}
"""The classes of arguments that a function can change, by module."""


def serve(program: str, entry_point: str) -> None:
    """Answer requests about an answer's program until the tests have ended."""
    answer = AnswerProgram(program, entry_point)
    requests = io.BufferedReader(io.FileIO(REQUESTS))
    while True:
        size = int.from_bytes(requests.read(8), "little")
        if not size:
            return
        unpickler = Unpickler(io.BytesIO(requests.read(size)), answer.packer)
        operation, *operands = unpickler.load()
        try:
            reply = getattr(answer, operation)(*operands)
        except BaseException as error:  # noqa: BLE001 - of the answer
            reply = {"error": answer.packer.pack_error(error)}
        line = memoryview(json.dumps(reply).encode() + b"\n")
        while line:
            line = line[os.write(REPLIES, line) :]


class Unpickler(pickle.Unpickler):
    """Reads what the trusted side sends; the numbers in it stand for objects that are here."""

    def __init__(self, file: io.BytesIO, packer: Packer) -> None:
        super().__init__(file)
        self._packer = packer

    def persistent_load(self, pid: int) -> object:
        """Return an object by its number."""
        return self._packer.objects[pid]


class AnswerProgram:
    """An answer's program; the methods are what the tests' process may ask for."""

    def __init__(self, program: str, entry_point: str) -> None:
        self.packer = Packer()
        self._program = program
        self._entry_point = entry_point
        self._space: dict[str, Any] = {}

    def start(self, imports: str) -> dict[str, object]:
        """Run the program; names that it does not define come from the tests' imports."""
        module = sys.modules["__test__"] = ModuleType("__test__")
        self._space = module.__dict__
        self._space.update(__builtins__=builtins, __file__="__test__.py")
        code = compile(self._program, "program.py", "exec", dont_inherit=True)
        exec(code, self._space)  # noqa: S102 - what this process is for
        imported: dict[str, Any] = {}
        exec(imports, imported)  # noqa: S102 - of the tests
        for name, value in imported.items():
            self._space.setdefault(name, value)
        return {"value": self._entry_point in self._space}

    def call(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], state: dict[str, Any]
    ) -> dict[str, object]:
        """Call the entry point in the state that the tests' process is in."""
        take_over(state)
        given = [*arguments, *keywords.values()]
        before = [self._pack_changeable(argument) for argument in given]
        shown = sys.stdout
        if state["capture"]:
            sys.stdout = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
        reply: dict[str, object] = {}
        try:
            value = self._space[self._entry_point](*arguments, **keywords)
            places = [number for number, argument in enumerate(given) if argument is value]
            if places and before[places[0]]:
                reply["value"] = ["argument", places[0]]
            else:
                reply["value"] = self.packer.pack(value)
        except BaseException as error:  # noqa: BLE001 - of the answer
            reply["error"] = self.packer.pack_error(error)
        if state["capture"]:
            sys.stdout.flush()
            printed: Any = sys.stdout.buffer
            reply["printed"] = printed.getvalue().decode("utf-8", "replace")
            sys.stdout = shown
        after = [self._pack_changeable(argument) for argument in given]
        reply["changed"] = [
            [number, json.loads(text)]
            for number, text in enumerate(after)
            if text != before[number]
        ]
        return reply

    def get(self, number: int, name: str) -> dict[str, object]:
        """Read an attribute of an object."""
        value = getattr(self.packer.objects[number], name)
        if callable(value) and not isinstance(value, type):
            return {"method": True}
        return {"value": self.packer.pack(value)}

    def use(
        self, number: int, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> dict[str, object]:
        """Call a method of an object; with the name "" the object itself."""
        function = self.packer.objects[number]
        if name:
            function = getattr(function, name)
        return {"value": self.packer.pack(function(*arguments, **keywords))}

    def step(self, number: int) -> dict[str, object]:
        """Return the next item of an iterator, or say that there is none."""
        try:
            return {"value": self.packer.pack(next(self.packer.objects[number]))}
        except StopIteration:
            return {"end": True}

    def close(self, *figures: Any) -> dict[str, object]:
        """Close figures of pyplot."""
        pyplot: Any = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            pyplot.close(*figures)
        return {"value": None}

    def _pack_changeable(self, argument: object) -> str:
        """Return the text of an argument that a function can change; "" for others."""
        for module, names in CHANGEABLE.items():
            for name in names:
                if isinstance(argument, getattr(sys.modules.get(module), name, ())):
                    return json.dumps(self.packer.pack(argument))
        return ""


def take_over(state: dict[str, Any]) -> None:
    """Bring this process into the state of the tests' process: folder, random numbers."""
    if os.getcwd() != state["folder"]:  # noqa: PTH109 - pathlib takes 10 ms to import
        os.chdir(state["folder"])
    for name, random_state in state["random"].items():
        module: Any = __import__(name, fromlist=["*"])
        set_state = module.setstate if name == "random" else module.set_state
        set_state(random_state)
