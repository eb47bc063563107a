"""The tests of a programming problem as values, and their conversion from test programs.

``from_asserts`` turns programs that assert (MBPP, HumanEval) into ``CodeTests``. Each test is an
input and the expected output, so that only inputs enter a sandbox. Programs that cannot be turned
are kept as ``unittest``. ``CodeTests.judged_by`` says whether they, too, are judged outside.
"""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from openconductor.errors import TaskError
from openconductor.graders.code_expressions import FAILURES, NotPlainExpression, evaluate
from openconductor.graders.code_outside import is_judged_outside
from openconductor.graders.reading.snippet import names_of
from openconductor.sandboxes.encoding import NotPlain, encode
from openconductor.syntax import parse_expression, parse_program

HOLE = "_"
"""The name that stands for the returned value in a condition."""
MAX_TESTS = 2_000
JudgedBy = Literal["outside", "inside"]
"""Compared outside of the answer's process, or by a test program within it."""


@dataclass(frozen=True, slots=True)
class IoTest:
    """A text on standard input, and the expected standard output."""

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
        """True if only the truth of the returned value counts, which may then be of any type."""
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
        given: what the problem's text defines beside the entry point, for ``unittest`` to use:
            imports, constants, helpers.
    """

    tests: tuple[IoTest | CallTest, ...] = ()
    entry_point: str | None = None
    unittest: str | None = None
    given: str = field(default="", repr=False)

    @property
    def judged_by(self) -> JudgedBy:
        """The way that all of the tests are judged in; one judged inside makes it ``"inside"``."""
        program = self.unittest
        if program and not is_judged_outside(program, self.given, self.entry_point):
            return "inside"
        return "outside"


def from_rows(rows: Sequence[Mapping[str, object]], entry_point: str | None = None) -> CodeTests:
    """Return the tests of a local file.

    Args:
        rows: ``{input, output}`` or ``{args, expected}`` each; ``args`` is a list, or a dict by
            name.
        entry_point: the function that ``args`` are for.

    Raises:
        TaskError: a row of another shape, or ``args`` without an entry point.
    """
    tests = [_from_row(number, row, entry_point) for number, row in enumerate(rows)]
    return CodeTests(tuple(tests), entry_point)


def _from_row(number: int, row: Mapping[str, object], entry_point: str | None) -> IoTest | CallTest:
    if "input" in row and "output" in row:
        return IoTest(str(row["input"]), str(row["output"]))
    args = row.get("args")
    if "expected" in row and entry_point:
        if isinstance(args, dict):
            return CallTest((), row["expected"], cast("dict[str, object]", args))
        if isinstance(args, (list, tuple)):
            return CallTest(tuple(cast("Sequence[object]", args)), row["expected"])
    message = f"test {number}: got the fields {sorted(row)} with the entry point {entry_point!r}"
    raise TaskError(
        f"{message}; expected input and output, or args (a list or a dict), expected and an "
        "entry point"
    )


def from_json_lines(inputs: Sequence[str], outputs: Sequence[str], entry_point: str) -> CodeTests:
    """Return LiveCodeBench's functional tests.

    Args:
        inputs: a JSON value a line in each, one line an argument.
        outputs: one JSON value each.
        entry_point: the function under test.

    Raises:
        TaskError: a text is not JSON, or there are not as many outputs as inputs.
    """
    tests: list[CallTest] = []
    try:
        for text, expected in zip(inputs, outputs, strict=True):
            arguments = tuple(json.loads(line) for line in text.split("\n"))
            tests.append(CallTest(arguments, json.loads(expected)))
    except ValueError as error:
        raise TaskError(
            f"functional test: {error}; expected a JSON value a line, and as many outputs as inputs"
        ) from error
    return CodeTests(tuple(tests), entry_point)


def from_asserts(source: str, entry_point: str | None = None) -> CodeTests:
    """Turn assertions into tests that are judged outside, without running anything.

    Args:
        source: a test program: ``assert`` statements, a function ``check(candidate)`` that holds
            them, classes of ``unittest``, or functions and classes of pytest. Simple assignments
            and loops over constants are followed.
        entry_point: the function under test; None: the first function that a test calls and that
            the program does not define.

    Returns:
        The tests; ``unittest`` is the whole program if any of its statements could not be turned,
        and stands alone if it is judged outside.

    Raises:
        TaskError: the source is not Python, or calls no function.
    """
    try:
        body = parse_program(source).body
        lacking = names_of(source).lacking
    except SyntaxError as error:
        raise TaskError(f"test program: {error}; expected Python") from error
    entry_point = entry_point or _first_called(body, lacking)
    if entry_point is None:
        raise TaskError("test program: it calls no function; expected an entry point")
    checks: list[ast.FunctionDef] = []
    statements: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and node.args.args:
            checks.append(node)
        else:
            statements.append(node)
    candidates = {entry_point}
    if checks:
        candidates.add(checks[0].args.args[0].arg)
        statements += checks[0].body
    conversion = _Conversion(candidates)
    conversion.follow(statements)
    if conversion.complete:
        return CodeTests(tuple(conversion.tests), entry_point)
    if is_judged_outside(source, "", entry_point):
        return CodeTests((), entry_point, source)  # its assertions are judged there, all of them
    return CodeTests(tuple(conversion.tests), entry_point, source)


def _first_called(body: Sequence[ast.stmt], lacking: set[str]) -> str | None:
    """Return the first function that tests call and that they lack, else the first of all.

    Some tasks redefine a builtin such as ``sum``.
    """
    called: list[str] = []
    for statement in body:
        is_test = getattr(statement, "name", "").startswith("test")
        if is_test or isinstance(statement, (ast.Assert, ast.ClassDef)):
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    called.append(node.func.id)
    own = [name for name in called if name in lacking]
    return next(iter(own + called), None)


class _Conversion:
    """Follows a test program; ``complete`` is False if a statement of it cannot be turned."""

    def __init__(self, candidates: set[str]) -> None:
        self.tests: list[CallTest] = []
        self.complete = True
        self._candidates = candidates
        self._values: dict[str, object] = {}

    def follow(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            try:
                self._follow(statement)
            except (*FAILURES, NotPlain):
                self.complete = False

    def _follow(self, node: ast.stmt) -> None:
        match node:
            case ast.Assert(test):
                self._convert(test)
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

    def _convert(self, test: ast.expr) -> None:
        """Turn the condition of an assertion into a test."""
        filler = _HoleFiller(self._candidates, self._values)
        condition = ast.unparse(filler.visit(copy.deepcopy(test)))
        if not filler.calls and evaluate(test, self._values):
            return
        if len(filler.calls) != 1 or len(self.tests) >= MAX_TESTS:
            raise NotPlainExpression(
                "an assertion that never holds, or calls the function more than once"
            )
        call = filler.calls[0]
        arguments = tuple(evaluate(argument, self._values) for argument in call.args)
        keywords: dict[str, object] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise NotPlainExpression("keywords of a dict")
            keywords[keyword.arg] = evaluate(keyword.value, self._values)
        expected = None
        match test:
            case ast.Compare(ast.Call(), [ast.Eq()], [right]) if condition.startswith("_ == "):
                expected = evaluate(right, self._values)
                condition = None
            case _:
                _check_condition(condition)
        encode((arguments, keywords, expected))
        self.tests.append(CallTest(arguments, expected, keywords, "python", condition))


def _check_condition(condition: str) -> None:
    """Check that a condition can be evaluated later, whatever the program returns."""
    if "**" in condition:
        raise NotPlainExpression("a power")  # the program could choose its size
    try:
        evaluate(condition, {HOLE: 1})
    except NotPlainExpression:
        raise
    except FAILURES:
        pass  # the number 1 is an unsuitable value, another one may not be


class _HoleFiller(ast.NodeTransformer):
    """Puts the hole in place of calls of the function under test, and values in place of names."""

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
        if node.id not in self._values:
            return node
        return parse_expression(repr(self._values[node.id]))
