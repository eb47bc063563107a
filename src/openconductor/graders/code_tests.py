"""The tests of a programming problem, as values; and assert-style test programs turned into them.

In: rows of a task's file, or a test program that asserts (MBPP, HumanEval). Out: CodeTests. Each
test is an input and what the output must be, so that only inputs need to enter a sandbox. What
cannot be turned is kept as ``unittest``: a program that runs beside the answer, with the weaknesses
that ``unittest_driver`` names.
"""

from __future__ import annotations

import ast
import builtins
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from openconductor.errors import TaskError
from openconductor.graders.code_expressions import FAILURES, NotPlainExpression, evaluate
from openconductor.sandboxes.encoding import NotPlain, encode

HOLE = "_"
"""The name that stands for the returned value in a condition."""
MAX_TESTS = 2_000


@dataclass(frozen=True, slots=True)
class IoTest:
    """A text on standard input, and the text that must come out."""

    stdin: str
    expected: str


@dataclass(frozen=True, slots=True)
class CallTest:
    """Arguments of the entry point, and what it must return.

    Args:
        arguments: positional; plain builtins, as are all values here.
        expected: the value that must be returned.
        keywords: arguments by name.
        equality: ``"typed"``: of the same types throughout, so that a tuple is no list and 1.0 is
            not 1 (the graders' ``lcb-compat`` mode relaxes it); ``"python"``: as ``==`` of the
            builtins says, where the test itself says ``==``.
        condition: instead of ``expected``: an expression over ``_``, the returned value, that must
            be true.
    """

    arguments: tuple[object, ...]
    expected: object = None
    keywords: Mapping[str, object] = field(default_factory=dict[str, object])
    equality: Literal["typed", "python"] = "typed"
    condition: str | None = None

    @property
    def truth(self) -> bool:
        """Whether only the truth of the returned value counts, which may then be of any type."""
        return self.condition in {HOLE, f"not {HOLE}"}


@dataclass(frozen=True, slots=True)
class CodeTests:
    """All tests of a problem; every one must pass.

    Args:
        tests: judged outside of the sandbox.
        entry_point: the function of the CallTests: ``"name"``, ``"Class.method"``, or a method of a
            class ``Solution``.
        unittest: a test program that runs beside the answer: classes of ``unittest``, a function
            ``check(candidate)``, or plain assertions. None where ``tests`` say it all.
    """

    tests: tuple[IoTest | CallTest, ...] = ()
    entry_point: str | None = None
    unittest: str | None = None


def from_rows(rows: Sequence[Mapping[str, object]], entry_point: str | None = None) -> CodeTests:
    """Tests of a local file: ``{input, output}`` or ``{args, expected}`` each; ``args`` is a list, or a dict by name.

    Raises:
        TaskError: a row of another shape, or a CallTest without an entry point.
    """
    tests: list[IoTest | CallTest] = []
    for number, row in enumerate(rows):
        if "input" in row and "output" in row:
            tests.append(IoTest(str(row["input"]), str(row["output"])))
        elif (
            "args" in row
            and "expected" in row
            and entry_point
            and isinstance(row["args"], (list, tuple, dict))
        ):
            args = cast("Sequence[object] | dict[str, object]", row["args"])
            positional, keywords = ((), args) if isinstance(args, dict) else (tuple(args), {})
            tests.append(CallTest(positional, row["expected"], keywords))
        else:
            raise TaskError(
                f"test {number}: got the fields {sorted(row)} with the entry point {entry_point!r}, expected input and "
                "output, or args (a list or a dict) and expected beside an entry point"
            )
    return CodeTests(tuple(tests), entry_point)


def from_json_lines(inputs: Sequence[str], outputs: Sequence[str], entry_point: str) -> CodeTests:
    """LiveCodeBench's functional tests: an input holds a JSON value a line, one an argument; an output is one value.

    Raises:
        TaskError: what is no JSON.
    """
    try:
        tests = tuple(
            CallTest(tuple(json.loads(line) for line in given.split("\n")), json.loads(expected))
            for given, expected in zip(inputs, outputs, strict=True)
        )
    except ValueError as error:
        raise TaskError(
            f"functional test: {error}; expected a JSON value a line, and as many outputs as inputs"
        ) from error
    return CodeTests(tests, entry_point)


def from_asserts(source: str, entry_point: str | None = None) -> CodeTests:
    """Turn assertions into tests that are judged outside, where that can be done without running anything.

    Args:
        source: a test program: ``assert`` statements, or a function ``check(candidate)`` that holds
            them. Simple assignments and loops over constants are followed.
        entry_point: the function under test; None: the first function that an assertion calls and
            that is no builtin.

    Returns:
        The tests; ``unittest`` is the whole program where any of its statements could not be
        turned.

    Raises:
        TaskError: no Python, or no function to be tested.
    """
    try:
        body: list[ast.stmt] = ast.parse(source).body
    except SyntaxError as error:
        raise TaskError(f"test program: {error}; expected Python") from error
    checks = [
        node
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.args.args
    ]
    names = {checks[0].args.args[0].arg} if checks else set[str]()
    entry_point = entry_point or _first_called(body)
    if entry_point is None:
        raise TaskError("test program: no function is called in it; expected an entry point")
    conversion = _Conversion({*names, entry_point})
    conversion.follow(
        [*[node for node in body if node not in checks], *(checks[0].body if checks else [])]
    )
    return CodeTests(tuple(conversion.tests), entry_point, None if conversion.complete else source)


def _first_called(body: Sequence[ast.stmt]) -> str | None:
    """The first function called that is no builtin; else the first of all (some tasks redefine ``sum``)."""
    asserted = [
        node
        for statement in body
        if isinstance(statement, ast.Assert)
        for node in ast.walk(statement)
    ]
    called = [
        node.func.id
        for node in asserted
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    return next(
        (name for name in called if not hasattr(builtins, name)), called[0] if called else None
    )


class _Conversion:
    """Follows a test program's statements; ``complete`` is False once one of them could not be turned."""

    def __init__(self, candidates: set[str]) -> None:
        self.tests: list[CallTest] = []
        self.complete = True
        self._candidates = candidates
        self._values: dict[str, object] = {}

    def follow(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            try:
                self._statement(statement)
            except (*FAILURES, NotPlain):
                self.complete = False

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assert(test):
                self._assertion(test)
            case ast.Assign([ast.Name(name)], value):
                self._values.pop(name, None)
                self._values[name] = evaluate(value, self._values)
            case ast.For(ast.Name(name), items, body, orelse=[]):
                for item in list(cast("list[object]", evaluate(items, self._values))):
                    self._values[name] = item
                    self.follow(body)
            case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Expr(ast.Constant()):
                pass
            case _:
                raise NotPlainExpression(ast.unparse(node)[:80])

    def _assertion(self, test: ast.expr) -> None:
        filled = _Filled(self._candidates, self._values)
        condition = ast.unparse(filled.visit(copy.deepcopy(test)))
        if not filled.calls and evaluate(test, self._values):
            return
        if len(filled.calls) != 1 or len(self.tests) >= MAX_TESTS:
            raise NotPlainExpression(
                "an assertion that never holds, or calls the function more than once"
            )
        call = filled.calls[0]
        arguments = tuple(evaluate(node, self._values) for node in call.args)
        keywords = {
            str(keyword.arg): evaluate(keyword.value, self._values)
            for keyword in call.keywords
            if keyword.arg
        }
        if len(keywords) < len(call.keywords):
            raise NotPlainExpression("keywords of a dict")
        expected = None
        match test:
            case ast.Compare(ast.Call(), [ast.Eq()], [right]) if condition.startswith(
                f"{HOLE} == "
            ):
                expected, condition = evaluate(right, self._values), None
            case _:
                self._try_out(condition)
        encode((arguments, keywords, expected))
        self.tests.append(CallTest(arguments, expected, keywords, "python", condition))

    def _try_out(self, condition: str) -> None:
        """See that a condition can be evaluated later, whatever the program returns."""
        if "**" in condition:
            raise NotPlainExpression("a power")  # its size could be the program's choice
        try:
            evaluate(condition, {HOLE: 1})
        except NotPlainExpression:
            raise
        except FAILURES:
            pass  # not of the number 1


class _Filled(ast.NodeTransformer):
    """Puts the hole in the place of calls of the function under test, and values in the place of names."""

    def __init__(self, candidates: set[str], values: Mapping[str, object]) -> None:
        self.calls: list[ast.Call] = []
        self._candidates = candidates
        self._values = values

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not isinstance(node.func, ast.Name) or node.func.id not in self._candidates:
            return self.generic_visit(node)
        self.calls.append(node)
        return ast.Name(HOLE, ast.Load())

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return (
            ast.parse(repr(self._values[node.id]), mode="eval").body
            if node.id in self._values
            else node
        )
