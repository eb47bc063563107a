"""The parser: the Conductor's text in, a valid Workflow or a WorkflowError out.

It decides the reward, so it repairs, wraps and cuts nothing, and it takes time linear in the text
(at most 65,536 characters), whatever the text.

How a list is found. A list is one of the three names as a whole word, then ``=`` or ``:``, then
``[`` (white space between them is free). ``my_model_id`` and ``model_ids`` are other words; a
dotted ``x.model_id`` is our word; a quoted key (``"model_id": [``) is not, since a quote stands
between the name and the sign. From its bracket on a list is read token by token to the matching
bracket, so that its strings and comments belong to it, and nothing that looks like a list inside
them counts. What follows the closing bracket is prose again; so is everything outside lists, and
there quotes, brackets and ``#`` mean nothing. A list is broken off, and the rest is prose, where it
cannot go on: at a list of ours outside a string, at a quote that is not closed or that is glued to
a word (``don't``), at a stray backslash or a wrong bracket, or deeper than 50 brackets. A broken
list still counts as the last of its name, and is an error.

Which error is raised. The reasons are checked in this order, each over the lists (model_id,
subtasks, access_list) and steps in order: too_long, missing_list, not_a_literal, unequal_lengths,
no_steps, too_many_steps, unknown_worker, bad_subtask, bad_access, forward_access. (``truncated`` is
the caller's.)

Not covered: whether the subtasks make sense; whether a worker can be reached; names in any other
spelling (``**model_id**``, ``Model_ID``); Python before or after a list (``[0] * 3`` is the list
``[0]``).
"""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from openconductor.errors import WorkflowError, WorkflowReason
from openconductor.types import Step, Workflow

_AST = threading.Lock()
"""One literal at a time: CPython 3.11 keeps the depth of an AST per interpreter, so two threads can trip each other
(SystemError: AST constructor recursion depth mismatch)."""

MAX_TEXT = 65_536
"""The longest text that is looked at, in characters; a longer one is too_long."""

_NAMES = ("model_id", "subtasks", "access_list")
_MAX_DEPTH = 50  # a valid list nests two deep; this keeps Python's own parser far from its limits
_MAX_SIGNS = 4  # in one item: no literal has more than -1e-5-2e-3j
_CLOSER = {"[": "]", "(": ")", "{": "}"}
_LITERAL_NAMES = frozenset({"True", "False", "None", "set"})
# A number that runs into one of these warns in Python's tokenizer (1or 2), and is never part of a
# literal.
_KEYWORD_ENDS = ("and", "else", "for", "if", "in", "is", "not", "or")

_HEAD_PATTERN = r"(?<!\w)(?:model_id|subtasks|access_list)\s*+[=:]\s*+\["
_HEAD = re.compile(_HEAD_PATTERN)
# Possessive repeats: a string that is not closed fails without trying shorter ones. A quote at
# which a string opens is never escaped (a stray backslash breaks the list), so after one failed
# search to the end of the line (or of the text, for triple quotes) there is no second quote of that
# kind to search from: that is what keeps the whole pass linear.
_TOKEN = re.compile(
    rf"""
      (?P<head>{_HEAD_PATTERN})
    | (?P<string>[bfrtuBFRTU]{{0,2}}(?:
          '''(?:[^'\\]++|\\.|'(?!''))*+'''
        | \"\"\"(?:[^"\\]++|\\.|"(?!""))*+\"\"\"
        | '(?!'')(?:[^'\\\r\n]++|\\(?:\r\n|.))*+'
        | "(?!"")(?:[^"\\\r\n]++|\\(?:\r\n|.))*+"
      ))
    | (?P<glued>\w++['"])
    | (?P<word>\w++)
    | (?P<space>[ \t\f\r\n]++|\\(?:\r\n|[\r\n])|\#[^\r\n]*+)
    | (?P<open>[\[({{])
    | (?P<close>[\])}}])
    | (?P<sign>[+-])
    | (?P<divider>[,:])
    | (?P<dot>\.)
    | (?P<stray>['"\\])
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(\r\n|[0-7]{1,3}|.)", re.DOTALL)
_LONG_ESCAPE = re.compile(r"\\U([0-9a-fA-F]{8})")
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_workflow(
    text: str, workers: Iterable[int], *, max_steps: int = 5, accept_allowed: bool = False
) -> Workflow:
    r"""Read the workflow off a completion.

    Args:
        text: what the Conductor wrote: anything, with the three lists somewhere in it.
        workers: the ordinals on offer.
        max_steps: the most steps that a workflow may have.
        accept_allowed: whether three empty lists mean *accept* (a later round), which is the
            workflow without steps.

    Raises:
        WorkflowError: the text holds no valid workflow; ``.reason`` says which rule it broke.
            Nothing else is raised.

    >>> parse_workflow('model_id = [2]\nsubtasks = ["Add."]\naccess_list = [[]]', {0, 2})
    Workflow(steps=(Step(worker=2, subtask='Add.', access=()),))
    """
    if len(text) > MAX_TEXT:
        raise WorkflowError(
            WorkflowReason.TOO_LONG,
            f"the text: got {len(text)} characters, expected at most {MAX_TEXT}",
        )
    stand_in = _unused_character(text) if _SURROGATE.search(text) else ""
    found = _find_lists(_SURROGATE.sub(stand_in, text) if stand_in else text)
    if missing := [name for name in _NAMES if name not in found]:
        expected = " and ".join(f"{name} = [...]" for name in missing)
        raise WorkflowError(
            WorkflowReason.MISSING_LIST, f"the text: expected {expected}, found no such list"
        )
    ids, subtasks, accesses = (_literal(found[name]) for name in _NAMES)
    if accept_allowed and not ids and not subtasks and not accesses:
        return Workflow(())
    _check_steps(ids, subtasks, accesses, frozenset(workers), max_steps, stand_in)
    triples = zip(ids, subtasks, accesses, strict=True)
    return Workflow(
        tuple(Step(cast(int, i), cast(str, s), cast("list[int] | str", a)) for i, s, a in triples)  # type: ignore[arg-type]
    )


def validate_workflow(
    workflow: Workflow, workers: Iterable[int], *, max_steps: int | None = None
) -> None:
    """Check a hand-built workflow by the rules that hold for a parsed one; no steps at all is no_steps.

    Args:
        workflow: its steps may hold values of any type; whatever is wrong is named.
        workers: the ordinals on offer.
        max_steps: the most steps that it may have; None is no limit.

    Raises:
        WorkflowError: it breaks a rule, named by ``.reason``.
    """
    steps = workflow.steps
    # A Step keeps a sequence as a tuple; what it was given else is named as it is.
    accesses = [
        list(step.access) if isinstance(step.access, tuple) else step.access for step in steps
    ]
    _check_steps(
        [step.worker for step in steps],
        [step.subtask for step in steps],
        accesses,
        frozenset(workers),
        max_steps,
    )


# --- finding the lists
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _List:
    """One list as it is in the text: where, and either its source or why it cannot be a literal."""

    name: str
    start: int
    end: int  # where the search for the next list goes on
    source: str = ""
    fault: str = ""


def _find_lists(text: str) -> Mapping[str, _List]:
    """The last list of each name; each character is read once, forwards."""
    found: dict[str, _List] = {}
    position = 0
    while head := _HEAD.search(text, position):
        name = next(name for name in _NAMES if text.startswith(name, head.start()))
        found[name] = _read_list(text, name, head.end() - 1)
        position = found[name].end
    return found


def _read_list(text: str, name: str, start: int) -> _List:
    """Read one list from its opening bracket at ``start`` to the matching bracket, or to where it breaks."""
    pieces: list[str] = []
    closers: list[str] = []
    signs = 0
    before = ""  # the kind of the token before this one, white space and comments aside; "set" after that name
    fault = ""
    for token in _TOKEN.finditer(text, start):
        kind, piece = str(token.lastgroup), token.group()
        if broken := _breaks(kind, piece, token.start(), closers):
            # A list of ours is searched for at the head that broke this one; a quote or bracket is
            # left behind.
            end = token.start() if kind == "head" else token.end()
            return _List(name, start, end, fault=fault or broken)
        if kind == "open":
            closers.append(_CLOSER[piece])
        elif kind == "close":
            closers.pop()
        signs = signs + 1 if kind == "sign" else 0 if kind in ("open", "divider") else signs
        is_call = kind == "open" and before in ("close", "word", "string", "dot")  # or a subscript
        if not fault and (signs > _MAX_SIGNS or is_call or _is_foreign(kind, piece)):
            fault = f"{_short(piece)} at character {token.start()} belongs to no literal"
        if kind != "space":
            before = piece if piece == "set" else kind
        pieces.append(_quiet(piece) if kind == "string" else piece)
        if not closers:
            return _List(name, start, token.end(), "".join(pieces), fault)
    return _List(
        name, start, len(text), fault=fault or "the list is not closed before the text ends"
    )


def _breaks(kind: str, piece: str, position: int, closers: Sequence[str]) -> str:
    """Why a list cannot go on at this token; empty where it can."""
    if kind == "head":
        return f"the list is not closed before {_short(piece)} at character {position}"
    if kind == "glued" or (kind == "stray" and piece != "\\"):
        return f"the quote at character {position + len(piece) - 1} opens no string that is closed"
    if kind == "stray":
        return f"the backslash at character {position} stands outside a string"
    if kind == "close" and piece != closers[-1]:
        return f"the bracket at character {position}: got {piece!r}, expected {closers[-1]!r}"
    if kind == "open" and len(closers) == _MAX_DEPTH:
        return f"the brackets nest deeper than {_MAX_DEPTH} at character {position}"
    return ""


def _is_foreign(kind: str, piece: str) -> bool:
    """Whether a token can belong to no literal, so that Python need not be asked."""
    if kind == "word":
        is_number = piece[0] in "0123456789" and not piece.endswith(_KEYWORD_ENDS)
        return not is_number and piece not in _LITERAL_NAMES
    if kind == "string":
        return not {"f", "t"}.isdisjoint(_prefix(piece))
    return kind == "other"


def _unused_character(text: str) -> str:
    r"""A character of private use that the text lacks, to stand in for lone surrogates, which stop Python's parser.

    Neither the character nor its escape (\U000f0000) is in the text, so a string holds it only for
    a surrogate. There are 131,068 to choose from, more than a text of bounded length can use.
    """
    used = {*map(ord, text), *(int(digits, 16) for digits in _LONG_ESCAPE.findall(text))}
    return next(chr(code) for code in range(0xF0000, 0x10FFFE) if code not in used)


# --- from source to values
# --------------------------------------------------------------------------------------------


def _prefix(string: str) -> str:
    """The letters before the quote of a string literal, in lower case."""
    return string[: len(string) - len(string.lstrip("bfrtuBFRTU"))].lower()


def _quiet(string: str) -> str:
    r"""The same string literal, spelt so that Python does not warn.

    Python keeps the backslash of an escape that it does not know ("\d") and warns; where warnings
    are errors it refuses. Doubling the backslash says the same without a warning, and needs no
    filter shared by all threads.
    """
    if "\\" not in string:
        return string
    prefix = _prefix(string)
    if "r" in prefix:
        return string
    is_bytes = "b" in prefix
    known = "\r\n\\'\"abfnrtvx" if is_bytes else "\r\n\\'\"abfnrtvxNuU"

    def respell(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped[0] in "01234567":
            code = int(escaped, 8)
            return (
                match[0]
                if code <= 0o377
                else f"\\x{code & 0xFF:02x}"
                if is_bytes
                else f"\\u{code:04x}"
            )
        return match[0] if escaped[0] in known else "\\" + match[0]

    return _ESCAPE.sub(respell, string)


def _literal(found: _List) -> list[object]:
    """The list's value.

    Raises:
        WorkflowError: not_a_literal.
    """
    fault = found.fault
    if not fault:
        try:
            with _AST:
                return cast("list[object]", ast.literal_eval(found.source))
        except SyntaxError as error:
            fault = "Python says " + ascii(error.msg)
        except (ValueError, TypeError):  # calls and operators; NUL; an unhashable key
            fault = "it holds more than numbers, strings and lists"
        except (
            MemoryError,
            RecursionError,
        ):  # bounded nesting should keep us from these on every Python
            fault = "it nests too deep"
    where = f"{found.name} at character {found.start}"
    raise WorkflowError(
        WorkflowReason.NOT_A_LITERAL, f"{where}: expected a list of literals; {fault}"
    )


# --- the rules
# --------------------------------------------------------------------------------------------------------


def _check_steps(
    ids: Sequence[object],
    subtasks: Sequence[object],
    accesses: Sequence[object],
    workers: frozenset[int],
    max_steps: int | None,
    stand_in: str = "",
) -> None:
    """Raise the first broken rule; ``stand_in`` is the character that lone surrogates were replaced by, if any."""
    if not len(ids) == len(subtasks) == len(accesses):
        got = f"model_id {len(ids)}, subtasks {len(subtasks)}, access_list {len(accesses)}"
        raise WorkflowError(
            WorkflowReason.UNEQUAL_LENGTHS,
            f"the three lists: got lengths {got}, expected equal lengths",
        )
    if not ids:
        raise WorkflowError(
            WorkflowReason.NO_STEPS, "the three lists: got 0 steps, expected at least 1"
        )
    if max_steps is not None and len(ids) > max_steps:
        raise WorkflowError(
            WorkflowReason.TOO_MANY_STEPS,
            f"the three lists: got {len(ids)} steps, expected at most {max_steps}",
        )
    for index, worker in enumerate(ids):
        if type(worker) is not int or worker not in workers:
            raise _step_error(
                WorkflowReason.UNKNOWN_WORKER, "model_id", index, worker, f"one of {_some(workers)}"
            )
    for index, subtask in enumerate(subtasks):
        _check_subtask(index, subtask, stand_in)
    for index, access in enumerate(accesses):
        if not _is_all(access) and not _is_index_list(access):
            expected = '[], "all", ["all"] or a list of step numbers from 0'
            raise _step_error(WorkflowReason.BAD_ACCESS, "access_list", index, access, expected)
    for index, access in enumerate(accesses):
        if _is_all(access):
            continue
        if late := [item for item in cast("list[int]", access) if item >= index]:
            expected = f"steps before step {index} only"
            raise _step_error(
                WorkflowReason.FORWARD_ACCESS, "access_list", index, late[0], expected
            )


def _check_subtask(index: int, subtask: object, stand_in: str) -> None:
    """Raise bad_subtask for anything but a string that is not blank and can be encoded."""
    if not isinstance(subtask, str) or not subtask.strip():
        raise _step_error(
            WorkflowReason.BAD_SUBTASK, "subtasks", index, subtask, "a string that is not blank"
        )
    if (stand_in and stand_in in subtask) or _SURROGATE.search(subtask):
        subtask = subtask.replace(stand_in, "\ufffd") if stand_in else subtask
        raise _step_error(
            WorkflowReason.BAD_SUBTASK,
            "subtasks",
            index,
            subtask,
            "a string without lone surrogates",
        )


def _is_all(access: object) -> bool:
    return access in ("all", ["all"])


def _is_index_list(access: object) -> bool:
    """Whether this is a list of ints from 0 on (``bool`` is no int)."""
    return isinstance(access, list) and all(
        type(i) is int and i >= 0 for i in cast("list[object]", access)
    )


def _step_error(
    reason: WorkflowReason, name: str, index: int, got: object, expected: str
) -> WorkflowError:
    return WorkflowError(reason, f"{name}, step {index}: got {_short(got)}, expected {expected}")


def _some(workers: frozenset[int], most: int = 20) -> str:
    """The ordinals on offer, in order, for a message."""
    shown = [str(ordinal) for ordinal in sorted(workers)]
    return (
        "the workers " + ", ".join(shown[:most] + ["..."] * (len(shown) > most))
        if shown
        else "no worker at all"
    )


def _short(value: object, most: int = 60) -> str:
    """A value for a message: its repr (which can always be encoded), shortened, or its size where that is huge."""
    if isinstance(value, str):
        value = value[:most] + "..." * (len(value) > most)
    try:
        shown = repr(value)
    except ValueError:  # Python refuses to write an int of more than a few thousand digits
        return f"something of type {type(value).__name__} too long to write"
    return shown if len(shown) <= most + 2 else shown[:most] + "..."
