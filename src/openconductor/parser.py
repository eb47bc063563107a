"""The parser: it reads a valid Workflow off the Conductor's text, or raises a WorkflowError.

It decides the reward, so it repairs, wraps and cuts nothing. It takes time linear in the text (at
most 65,536 characters), whatever the text.

Finding a list. A list is one of the three names as a whole word, then ``=`` or ``:``, then
``[`` (white space between them is free). ``my_model_id`` and ``model_ids`` are other words; a
dotted ``x.model_id`` is our word; a quoted key (``"model_id": [``) is not, since a quote stands
between the name and the sign. From its bracket on a list is read token by token to the matching
bracket, so that its strings and comments belong to it, and nothing that looks like a list inside
them counts. What follows the closing bracket is prose again; so is everything outside lists, and
there quotes, brackets and ``#`` mean nothing. A list is broken off, and the rest is prose, where it
cannot go on: at a list of ours outside a string, at a quote that is not closed or that is glued to
a word (``don't``), at a stray backslash or a wrong bracket, or deeper than 50 brackets. A broken
list still counts as the last of its name, and is an error.

Thoughts. What a model thinks before its plan may hold drafts of it, which do not count, nor does a
broken one swallow the plan. Servers that know a model's thoughts keep them out of its text. Where
they stand in the text, ``parse_completion`` leaves them out, in training as in asking.

The order of errors. The reasons are checked in this order, each over the lists (model_id,
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from openconductor.errors import WorkflowError, WorkflowReason
from openconductor.syntax import parse_expression
from openconductor.types import Step, Workflow

MAX_TEXT = 65_536
"""The longest text that is looked at, in characters; a longer one is too_long."""

_NAMES = ("model_id", "subtasks", "access_list")
_MAX_DEPTH = 50  # a valid list nests two deep; this keeps Python's own parser far from its limits
_MAX_SIGNS = 4  # in one item: no literal has more than -1e-5-2e-3j
_SHOWN_WORKERS = 20
_SHOWN_CHARACTERS = 60
_CLOSER = {"[": "]", "(": ")", "{": "}"}
_LITERAL_NAMES = frozenset({"True", "False", "None", "set"})
# A number that runs into one of these warns in Python's tokenizer (1or 2), and is never part of a
# literal.
_KEYWORD_ENDS = ("and", "else", "for", "if", "in", "is", "not", "or")

_THOUGHT = re.compile(
    r"(?:\s*+<think>.*?(?:</think>|\Z))++|.*?^[ \t]*+</think>", re.DOTALL | re.MULTILINE
)
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
_BYTES_ESCAPES = "\r\n\\'\"abfnrtvx"  # first characters after a backslash that Python knows
_TEXT_ESCAPES = _BYTES_ESCAPES + "NuU"
_ESCAPE = re.compile(r"\\(\r\n|[0-7]{1,3}|.)", re.DOTALL)
_LONG_ESCAPE = re.compile(r"\\U([0-9a-fA-F]{8})")
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_workflow(
    text: str, workers: Iterable[int], *, max_steps: int = 5, accept_allowed: bool = False
) -> Workflow:
    r"""Read the workflow off a completion.

    Args:
        text: any text of the Conductor, with the three lists somewhere in it.
        workers: the ordinals on offer.
        max_steps: the most steps that a workflow may have.
        accept_allowed: True: three empty lists mean *accept* (a later round), the workflow without
            steps.

    Raises:
        WorkflowError: the text holds no valid workflow; ``.reason`` says which rule it broke.
            Nothing else is raised.

    >>> parse_workflow('model_id = [2]\nsubtasks = ["Add."]\naccess_list = [[]]', {0, 2})
    Workflow(steps=(Step(worker=2, subtask='Add.', access=()),))
    """
    if len(text) > MAX_TEXT:
        message = f"the text: got {len(text)} characters, expected at most {MAX_TEXT}"
        raise WorkflowError(WorkflowReason.TOO_LONG, message)
    stand_in = ""
    if _SURROGATE.search(text):
        stand_in = _unused_character(text)
        text = _SURROGATE.sub(stand_in, text)
    lists = _find_lists(text)
    missing = [f"{name} = [...]" for name in _NAMES if name not in lists]
    if missing:
        message = f"the text: expected {' and '.join(missing)}, found no such list"
        raise WorkflowError(WorkflowReason.MISSING_LIST, message)
    ids, subtasks, accesses = (_read_value(lists[name]) for name in _NAMES)
    if accept_allowed and not ids and not subtasks and not accesses:
        return Workflow(())
    _check_steps(ids, subtasks, accesses, frozenset(workers), max_steps, stand_in)
    steps = [
        Step(cast(int, worker), cast(str, subtask), cast("list[int] | str", access))  # type: ignore[arg-type]
        for worker, subtask, access in zip(ids, subtasks, accesses, strict=True)
    ]
    return Workflow(tuple(steps))


def strip_thought(text: str) -> str:
    r"""Return a completion without the thought that it begins with, which is no part of the plan.

    A thought ends with the first ``</think>``. It begins with ``<think>``, or the prompt has begun
    it: then its end stands first on a line. A thought without an end is all of the text.

    >>> strip_thought('<think>model_id = [0]? No.</think>\nmodel_id = [1]')
    '\nmodel_id = [1]'
    """
    thought = _THOUGHT.match(text)
    return text if thought is None else text[thought.end() :]


def parse_completion(
    text: str, workers: Iterable[int], *, max_steps: int = 5, accept_allowed: bool = False
) -> Workflow:
    """Read the workflow off a completion, as ``parse_workflow`` does off all but its thought."""
    plan = strip_thought(text)
    return parse_workflow(plan, workers, max_steps=max_steps, accept_allowed=accept_allowed)


def trailing_text(text: str) -> str:
    r"""Return what follows the three lists of a completion, without the end of a code fence.

    "": nothing, or a list is missing.

    >>> trailing_text('model_id = [2]\nsubtasks = ["Add."]\naccess_list = [[]]\n```\nThat is all.')
    'That is all.'
    """
    text = strip_thought(text)
    lists = _find_lists(text[:MAX_TEXT])
    if len(lists) < len(_NAMES):
        return ""
    end = max(found.end for found in lists.values())
    return text[end:].strip().removeprefix("```").strip()


def validate_workflow(
    workflow: Workflow, workers: Iterable[int], *, max_steps: int | None = None
) -> None:
    """Check a hand-built workflow by the rules for a parsed one; an empty one is no_steps.

    Args:
        workflow: its steps may hold values of any type; whatever is wrong is named.
        workers: the ordinals on offer.
        max_steps: the most steps that it may have; None: no limit.

    Raises:
        WorkflowError: it breaks a rule, named by ``.reason``.
    """
    steps = workflow.steps
    # A Step keeps a sequence as a tuple, and other values as they are, to be named in the error.
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


# ── finding the lists ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _List:
    """One list in the text: its place, and either its source or why it cannot be a literal."""

    name: str
    start: int
    end: int  # where the search for the next list goes on
    source: str = ""
    fault: str = ""


def _find_lists(text: str) -> Mapping[str, _List]:
    """Return the last list of each name; each character is read once, forwards."""
    lists: dict[str, _List] = {}
    position = 0
    while head := _HEAD.search(text, position):
        name = next(name for name in _NAMES if text.startswith(name, head.start()))
        lists[name] = _read_list(text, name, head.end() - 1)
        position = lists[name].end
    return lists


def _read_list(text: str, name: str, start: int) -> _List:
    """Read one list from its opening bracket to the matching bracket, or to where it breaks."""
    pieces: list[str] = []
    closers: list[str] = []
    signs = 0
    before = ""  # the kind of the token before, apart from white space and comments; or "set"
    fault = ""
    for token in _TOKEN.finditer(text, start):
        kind = str(token.lastgroup)
        piece = token.group()
        broken = _why_broken(kind, piece, token.start(), closers)
        if broken:
            # If a list of ours breaks this one, its head is searched next. A quote or bracket is
            # left behind.
            end = token.start() if kind == "head" else token.end()
            return _List(name, start, end, fault=fault or broken)

        if kind == "open":
            closers.append(_CLOSER[piece])
        elif kind == "close":
            closers.pop()
        if kind == "sign":
            signs += 1
        elif kind in ("open", "divider"):
            signs = 0
        is_call = kind == "open" and before in ("close", "word", "string", "dot")  # or a subscript
        if not fault and (is_call or signs > _MAX_SIGNS or _is_foreign(kind, piece)):
            fault = f"{_short(piece)} at character {token.start()} belongs to no literal"
        if kind != "space":
            before = "set" if piece == "set" else kind
        pieces.append(_without_warnings(piece) if kind == "string" else piece)
        if not closers:
            return _List(name, start, token.end(), "".join(pieces), fault)
    fault = fault or "the list is not closed before the text ends"
    return _List(name, start, len(text), fault=fault)


def _why_broken(kind: str, piece: str, position: int, closers: Sequence[str]) -> str:
    """Return why a list cannot go on at this token; "": it can."""
    if kind == "head":
        return f"the list is not closed before {_short(piece)} at character {position}"
    if kind == "stray" and piece == "\\":
        return f"the backslash at character {position} stands outside a string"
    if kind in ("glued", "stray"):
        return f"the quote at character {position + len(piece) - 1} opens no string that is closed"
    if kind == "close" and piece != closers[-1]:
        return f"the bracket at character {position}: got {piece!r}, expected {closers[-1]!r}"
    if kind == "open" and len(closers) == _MAX_DEPTH:
        return f"the brackets nest deeper than {_MAX_DEPTH} at character {position}"
    return ""


def _is_foreign(kind: str, piece: str) -> bool:
    """Return True if a token can belong to no literal, so that Python need not be asked."""
    if kind == "word":
        is_number = piece[0] in "0123456789" and not piece.endswith(_KEYWORD_ENDS)
        return not is_number and piece not in _LITERAL_NAMES
    if kind == "string":
        prefix = _prefix(piece)
        return "f" in prefix or "t" in prefix
    return kind == "other"


def _unused_character(text: str) -> str:
    r"""Return a character that stands in for lone surrogates, which stop Python's parser.

    It is of private use, and neither the character nor its escape (\U000f0000) is in the text, so a
    string holds it only for a surrogate. There are 131,068 to choose from, more than a text of
    bounded length can use.
    """
    used = {ord(character) for character in text}
    used |= {int(digits, 16) for digits in _LONG_ESCAPE.findall(text)}
    return next(chr(code) for code in range(0xF0000, 0x10FFFE) if code not in used)


# ── from source to values ─────────────────────────────────────────────────────────────────────────
def _prefix(string: str) -> str:
    """Return the letters before the quote of a string literal, in lower case."""
    return string[: len(string) - len(string.lstrip("bfrtuBFRTU"))].lower()


def _without_warnings(string: str) -> str:
    r"""Return the same string literal, spelt so that Python does not warn.

    Python keeps the backslash of an escape that it does not know ("\d") and warns; where warnings
    are errors it fails. Doubling the backslash says the same without a warning, and needs no filter
    shared by all threads.
    """
    prefix = _prefix(string)
    if "\\" not in string or "r" in prefix:
        return string
    if "b" in prefix:
        return _ESCAPE.sub(lambda match: _respell(match, _BYTES_ESCAPES, "\\x{:02x}"), string)
    return _ESCAPE.sub(lambda match: _respell(match, _TEXT_ESCAPES, "\\u{:04x}"), string)


def _respell(match: re.Match[str], known: str, form: str) -> str:
    """Return an escape; if Python does not know it, in ``form`` or with two backslashes."""
    escaped = match[1]
    if escaped[0] in "01234567":
        code = int(escaped, 8)
        if code <= 0o377:
            return match[0]
        return form.format(code if known is _TEXT_ESCAPES else code & 0xFF)
    if escaped[0] in known:
        return match[0]
    return "\\" + match[0]


def _read_value(source: _List) -> list[object]:
    """Return the value of a list.

    Raises:
        WorkflowError: not_a_literal.
    """
    fault = source.fault
    if not fault:
        try:
            return cast("list[object]", ast.literal_eval(parse_expression(source.source)))
        except SyntaxError as error:
            fault = "Python says " + ascii(error.msg)
        except (ValueError, TypeError):  # calls and operators; NUL; an unhashable key
            fault = "it holds more than numbers, strings and lists"
        except (MemoryError, RecursionError):  # bounded nesting should prevent them on every Python
            fault = "it nests too deep"
    message = f"{source.name} at character {source.start}: expected a list of literals; {fault}"
    raise WorkflowError(WorkflowReason.NOT_A_LITERAL, message)


# ── the rules ─────────────────────────────────────────────────────────────────────────────────────
def _check_steps(
    ids: Sequence[object],
    subtasks: Sequence[object],
    accesses: Sequence[object],
    workers: frozenset[int],
    max_steps: int | None,
    stand_in: str = "",
) -> None:
    """Raise the first broken rule; ``stand_in`` replaced lone surrogates in the text."""
    if not len(ids) == len(subtasks) == len(accesses):
        got = f"model_id {len(ids)}, subtasks {len(subtasks)}, access_list {len(accesses)}"
        raise WorkflowError(
            WorkflowReason.UNEQUAL_LENGTHS,
            f"the three lists: got lengths {got}, expected equal lengths",
        )
    if not ids:
        message = "the three lists: got 0 steps, expected at least 1"
        raise WorkflowError(WorkflowReason.NO_STEPS, message)
    if max_steps is not None and len(ids) > max_steps:
        message = f"the three lists: got {len(ids)} steps, expected at most {max_steps}"
        raise WorkflowError(WorkflowReason.TOO_MANY_STEPS, message)
    for index, worker in enumerate(ids):
        if type(worker) is not int or worker not in workers:
            expected = f"one of {_describe_workers(workers)}"
            raise _step_error(WorkflowReason.UNKNOWN_WORKER, "model_id", index, worker, expected)
    for index, subtask in enumerate(subtasks):
        _check_subtask(index, subtask, stand_in)
    for index, access in enumerate(accesses):
        if not _is_all(access) and not _is_index_list(access):
            expected = '[], "all", ["all"] or a list of step numbers from 0'
            raise _step_error(WorkflowReason.BAD_ACCESS, "access_list", index, access, expected)
    for index, access in enumerate(accesses):
        if _is_all(access):
            continue
        for seen in cast("list[int]", access):
            if seen >= index:
                expected = f"steps before step {index} only"
                raise _step_error(
                    WorkflowReason.FORWARD_ACCESS, "access_list", index, seen, expected
                )


def _check_subtask(index: int, subtask: object, stand_in: str) -> None:
    """Raise bad_subtask for anything but a string that is not blank and can be encoded."""
    expected = ""
    if not isinstance(subtask, str) or not subtask.strip():
        expected = "a string that is not blank"
    elif stand_in and stand_in in subtask:
        subtask = subtask.replace(stand_in, "\ufffd")
        expected = "a string without lone surrogates"
    elif _SURROGATE.search(subtask):
        expected = "a string without lone surrogates"
    if expected:
        raise _step_error(WorkflowReason.BAD_SUBTASK, "subtasks", index, subtask, expected)


def _is_all(access: object) -> bool:
    return access in ("all", ["all"])


def _is_index_list(access: object) -> bool:
    """Return True for a list of ints from 0 on (``bool`` is no int)."""
    if not isinstance(access, list):
        return False
    return all(type(item) is int and item >= 0 for item in cast("list[object]", access))


def _step_error(
    reason: WorkflowReason, name: str, index: int, got: object, expected: str
) -> WorkflowError:
    return WorkflowError(reason, f"{name}, step {index}: got {_short(got)}, expected {expected}")


def _describe_workers(workers: frozenset[int]) -> str:
    """Return the ordinals on offer, in order, for a message."""
    if not workers:
        return "no worker at all"
    shown = [str(ordinal) for ordinal in sorted(workers)]
    if len(shown) > _SHOWN_WORKERS:
        shown = [*shown[:_SHOWN_WORKERS], "..."]
    return "the workers " + ", ".join(shown)


def _short(value: object) -> str:
    """Return a value for a message: its repr (which can always be encoded), shortened."""
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS:
        value = value[:_SHOWN_CHARACTERS] + "..."
    try:
        shown = repr(value)
    except ValueError:  # Python does not write an int of more than a few thousand digits
        return f"something of type {type(value).__name__} too long to write"
    if len(shown) <= _SHOWN_CHARACTERS + 2:
        return shown
    return shown[:_SHOWN_CHARACTERS] + "..."
