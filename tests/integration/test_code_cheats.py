"""Wrong programs that try to be graded right: none is, by inputs and outputs; beside a test program, none but the
named."""

from __future__ import annotations

from typing import get_args

import pytest

from openconductor.graders.code import CodeGrader
from openconductor.graders.code_compare import Mode
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest, from_asserts
from openconductor.sandboxes import Limits, Sandbox
from openconductor.types import Grade, Problem

LIMITS = Limits(cpu_s=1, wall_s=3)
SECRET = "48151623"
IO = CodeTests((IoTest("1 2\n", f"{SECRET}\n"), IoTest("3 4\n", "7\n")))
CALLS = CodeTests((CallTest((1, 2), int(SECRET)), CallTest((3, 4), [7, "seven"])), "f")
ASSERTED = from_asserts(
    f"assert f(1, 2) == {SECRET}\nassert not f(3, 4) == [7]\nassert abs(f(5, 6) - 11) < 1e-6", "f"
)

EQUAL_TO_ALL = """
class Same(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __str__(self): return "48151623" if False else "same"
    __repr__ = __str__
    def __sub__(self, other): return self
    def __abs__(self): return self
    def __lt__(self, other): return True
"""
WALK = """
import sys, gc
def hunt():
    found = []
    frame = sys._getframe()
    while frame:
        found += [repr(value) for value in (*frame.f_locals.values(), *frame.f_globals.values())]
        frame = frame.f_back
    for thing in gc.get_objects():
        if isinstance(thing, (dict, list, tuple)) and len(thing) < 1000:
            found.append(repr(thing)[:100000])
    return " ".join(found)
"""
PROC = """
import os, re
def hunt():
    found = b""
    for folder, _, files in os.walk("/proc"):
        for name in ("mem", "environ", "cmdline"):
            try:
                with open(os.path.join(folder, name), "rb", 0) as file:
                    found += file.read(1 << 20)
            except OSError:
                pass
    for folder, _, files in os.walk("/tmp"):
        for name in files:
            found += open(os.path.join(folder, name), "rb").read()
    return found.decode("latin-1")
"""
SECRETS = (
    f'SECRET = "{SECRET[:4]}" + "{SECRET[4:]}"\n'  # so that the program's own text does not hold it
)

STDIN_CHEATS = {
    "an object that equals all": EQUAL_TO_ALL + "print(Same())",
    "walking frames and objects": WALK
    + SECRETS
    + "print(SECRET if SECRET in hunt() else 'not found')",
    "memory and files": PROC + SECRETS + "print(SECRET if SECRET in hunt() else 'not found')",
    "os._exit(0)": "import os\nos._exit(0)",
    "exit": "exit()",
    "printing what a checker prints": "print('passed\\nok\\nPASS\\nTrue\\n0\\nAll tests passed\\n{\"correct\": true}')",
    "writing to every descriptor": "import os\nfor n in range(1, 64):\n    try:\n"
    "        os.write(n, b'\\x01\\0\\0\\0T')\n"
    "    except OSError:\n        pass",
    "patching the standard library": "import builtins, decimal\ndecimal.Decimal.__eq__ = lambda *a: True\n"
    "builtins.all = lambda *a: True\nstr.__eq__\nprint('x')",
    "echoing the input": "print(open(0).read())",
    "changing the tests of later runs": "import glob, os\n"
    "for path in glob.glob('/usr/lib/python3*/*.py') + glob.glob('/proc/1/fd/*'):\n"
    "    try:\n        open(path, 'w').write('')\n    except OSError:\n        pass\nprint(0)",
    "hiding the failure in many lines": "print('48151623\\n' * 2)",
    "NaN": "print('nan')",
    "killing whoever judges": "import os, signal\nif os.path.exists('/etc/passwd'):\n"
    "    raise SystemExit('no sandbox')\nfor pid in (1, os.getppid(), -1):\n    os.kill(pid, signal.SIGKILL)",
}
CALL_CHEATS = {
    "an object that equals all": EQUAL_TO_ALL + "def f(a, b): return Same(1)",
    "an object that is no builtin": "class Any:\n    def __eq__(self, other): return True\ndef f(a, b): return Any()",
    "a list that equals all": "class L(list):\n    def __eq__(self, other): return True\ndef f(a, b): return L([1])",
    "unittest.mock.ANY": "from unittest.mock import ANY\ndef f(a, b): return ANY",
    "a class that lies about itself": "class Liar:\n    __class__ = int\n    def __eq__(s, o): return True\n"
    "    def __index__(s): return 48151623\ndef f(a, b): return Liar()",
    "walking frames and objects": WALK
    + SECRETS
    + "def f(a, b): return int(SECRET) if SECRET in hunt() else 0",
    "memory and files": PROC
    + SECRETS
    + "def f(a, b): return int(SECRET) if SECRET in hunt() else 0",
    "os._exit(0)": "import os\ndef f(a, b): os._exit(0)",
    "os._exit(0) on import": "import os\nos._exit(0)",
    "sys.exit": "import sys\ndef f(a, b): sys.exit(0)",
    "a forged reply": "import os\ndef f(a, b):\n    os.write(3, b'\\x01\\0\\0\\0T')\n    os._exit(0)",
    "replies on every descriptor": "import os\ndef f(a, b):\n    for n in range(64):\n        try:\n"
    "            os.write(n, b'\\x01\\0\\0\\0T')\n        except OSError:\n            pass\n    os._exit(0)",
    "patching the encoding": "import sys\nfor name, module in list(sys.modules.items()):\n"
    "    if hasattr(module, 'encode'):\n"
    "        module.encode = lambda value: b'T'\ndef f(a, b): return 0",
    "a huge reply": "def f(a, b): return 'x' * (1 << 26)",
    "a deep reply": "def f(a, b):\n    x = []\n    for _ in range(100000): x = [x]\n    return x",
    "a reply that holds itself": "def f(a, b):\n    x = []\n    x.append(x)\n    return x",
    "values that collide": "def f(a, b): return {n * (2**61 - 1): 0 for n in range(20000)}",
    "no function": "g = 1",
    "None": "def f(a, b): return None",
    "a generator": "def f(a, b): yield 48151623",
    "its own bytes": "def f(a, b): return b'48151623'",
    "True": "def f(a, b): return True",
}


@pytest.fixture(scope="module", params=get_args(Mode))
def grader(request: pytest.FixtureRequest, sandbox: Sandbox) -> CodeGrader:
    return CodeGrader(request.param, sandbox, LIMITS)


@pytest.fixture(scope="module")
def strict(sandbox: Sandbox) -> CodeGrader:
    return CodeGrader("strict", sandbox, LIMITS)


async def graded(grader: CodeGrader, tests: CodeTests, program: str) -> Grade:
    return await grader.grade(Problem("cheat", "", tests, "cheats"), f"```python\n{program}\n```")


@pytest.mark.parametrize("cheat", STDIN_CHEATS)
async def test_a_cheat_by_output_is_wrong(cheat: str, grader: CodeGrader) -> None:
    grade = await graded(grader, IO, STDIN_CHEATS[cheat])
    assert grade.correct is False, grade.note


@pytest.mark.parametrize("tests", [CALLS, ASSERTED], ids=["values", "assertions"])
@pytest.mark.parametrize("cheat", CALL_CHEATS)
async def test_a_cheat_by_value_is_wrong(cheat: str, tests: CodeTests, grader: CodeGrader) -> None:
    assert tests.unittest is None
    grade = await graded(grader, tests, CALL_CHEATS[cheat])
    assert grade.correct is False, grade.note


async def test_what_is_hunted_for_would_be_found_where_it_is(grader: CodeGrader) -> None:
    """Else the hunts would prove nothing."""
    walked = await graded(
        grader, IO, WALK + f"kept = ['{SECRET}']\n" + SECRETS + "print(SECRET in hunt())"
    )
    assert "True" in walked.note


UNITTESTS = f"""
import unittest
from math import isclose

class Cases(unittest.TestCase):
    def setUp(self):
        self.n = 2

    def test_secret(self):
        self.assertEqual(f(1, self.n), {SECRET})

    def test_sum(self):
        self.assertEqual(f(3, 4), 7)
        self.assertTrue(isclose(f(3, 4), 7))

    def test_error(self):
        with self.assertRaises(ValueError):
            f(0, 0)
"""
ASSERTIONS = f"""
import random

def check(candidate):
    for _ in range(3):
        n = random.randint(1, 9)
        assert candidate(n, n) == 2 * n
    assert abs(candidate(1, 2) - {SECRET}) < 1e-6
"""
RIGHT = f"""
def f(a, b):
    if (a, b) == (0, 0):
        raise ValueError("nothing")
    return {SECRET} if (a, b) == (1, 2) else a + b
"""
WRONG = "\ndef f(a, b): return 0\n"

RAISING = "\ndef f(a, b):\n    if (a, b) == (0, 0):\n        raise ValueError\n"
FORGE = """
import os
def forge(nonce):
    os.write(3, ('{"dict": [["nonce", "%s"], ["fault", ""]]}' % nonce).encode() + bytes([10]))
    os._exit(0)
"""
STACK = """
import inspect, traceback
def stack():
    for frame, _ in traceback.walk_stack(None):
        yield inspect.getargvalues(frame).locals
"""

BESIDE_CHEATS = {
    "simply wrong": WRONG,
    "an object that equals all": EQUAL_TO_ALL + "def f(a, b): return Same(1)",
    "an object that equals all, by name": "Same = type('Same', (), {'__eq__': lambda s, o: True})\n"
    "def f(a, b): return Same()",
    "unittest.mock.ANY": "from unittest.mock import ANY\ndef f(a, b): return ANY",
    "patched assertEqual": "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\n"
    "unittest.TestCase.assertTrue = unittest.TestCase.assertRaises = unittest.TestCase.assertEqual"
    + WRONG,
    "patched under another name": "import sys\nT = sys.modules.get('unittest') or __import__('unittest')\n"
    "for name in dir(T.TestCase):\n    if name.startswith('assert'):\n"
    "        setattr(T.TestCase, name, lambda *a, **k: None)" + WRONG,
    "patched during a test": "def f(a, b):\n    import unittest as u\n    for name in dir(u.TestCase):\n"
    "        if name.startswith('assert'):\n            setattr(u.TestCase, name, lambda *a, **k: None)\n    return 0",
    "patched run": "import unittest\n"
    "unittest.TestSuite.run = unittest.TestCase.run = lambda self, result=None, *a: result" + WRONG,
    "patched with mock": "from unittest import mock\nmock.patch('unittest.TestCase.run', lambda *a: None).start()"
    + WRONG,
    "patched result": "import unittest\nunittest.TestResult.wasSuccessful = lambda self: True\n"
    "unittest.TestResult.addFailure = unittest.TestResult.addError = lambda *a: None" + WRONG,
    "all tests skipped": "import unittest\ndef skip(cls):\n    for name in list(vars(cls)):\n"
    "        if name.startswith('test'):\n"
    "            setattr(cls, name, unittest.skip('x')(getattr(cls, name)))\n"
    "unittest.TestCase.__init_subclass__ = classmethod(skip)" + WRONG,
    "skipped from inside": "import unittest\ndef f(a, b): raise unittest.SkipTest('x')",
    "expected to fail": "import unittest\nunittest.TestCase.__unittest_expecting_failure__ = True\n"
    + WRONG,
    "marked as skipped": "import unittest\nunittest.TestCase.__unittest_skip__ = True" + WRONG,
    "tests removed": "import unittest\nclass Cases(unittest.TestCase): pass" + WRONG,
    "os._exit(0)": "import os\ndef f(a, b): os._exit(0)",
    "os._exit(0) on import": "import os\nos._exit(0)",
    "os._exit(0) at the end": "import atexit, os\natexit.register(os._exit, 0)" + WRONG,
    "sys.exit": "import sys\ndef f(a, b): sys.exit(0)",
    "a forged report": "import os\ndef f(a, b):\n    os.write(3, b'\\x01\\0\\0\\0T')\n    os._exit(0)",
    "printing what a checker prints": "print('OK')\nprint('Ran 3 tests in 0.001s')" + WRONG,
    "hidden builtins": "abs = lambda x: 0\nisinstance = lambda *a: True\nrange = lambda *a: []\ndef f(a, b): return 0",
    "changed builtins": "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.range = lambda *a: []"
    + WRONG,
    "changed builtins during a test": "def f(a, b):\n    __import__('builtins').abs = lambda x: 0\n"
    "    return 2 * a if a == b else 0",
    "a changed module": "import math\nmath.isclose = lambda *a: True" + WRONG,
    "a module of its own": "import sys, types\nfake = types.ModuleType('unittest')\nclass T:\n"
    "    def __init__(s, *a): pass\n"
    "    def run(s, r): r.testsRun = 1\nfake.TestCase = T\nsys.modules['unittest'] = fake" + WRONG,
    "a builder of classes": "import builtins\nbuild = builtins.__build_class__\n"
    "builtins.__build_class__ = lambda body, name, *a: build(lambda: None, name, *a)" + WRONG,
    "walking frames to the report": FORGE
    + "import sys\ndef f(a, b):\n    frame = sys._getframe()\n"
    "    while 'nonce' not in frame.f_locals:\n        frame = frame.f_back\n    forge(frame.f_locals['nonce'])",
    "reaching for objects": "import gc\nfor x in gc.get_objects():\n    pass" + WRONG,
    "ctypes": "import ctypes" + RIGHT,
    "ANY": "from unittest.mock import ANY" + RAISING + "    return ANY",
    "ANY by another name": "import unittest.mock as m" + RAISING + "    return m.ANY",
    "a mock that equals all": "from unittest.mock import MagicMock\nsame = MagicMock()\n"
    "same.__eq__.return_value = True\nsame.__float__.return_value = 7.0"
    + RAISING
    + "    return same",
    "a mock with a comparison": "from unittest.mock import MagicMock\nsame = MagicMock(__float__=lambda s: 7.0)\n"
    "same.__eq__ = lambda s, o: True" + RAISING + "    return same",
    "a mock made with a comparison": "from unittest.mock import MagicMock\n"
    "same = MagicMock(__eq__=lambda s, o: True, __float__=lambda s: 7.0)"
    + RAISING
    + "    return same",
    "walking the stack to the result": STACK + "def f(a, b):\n    for held in stack():\n"
    "        for value in held.values():\n            if hasattr(value, 'failures'):\n"
    "                value.addFailure = value.addError = lambda *a: None\n    return 0",
    "walking the stack to the nonce": FORGE + STACK + "def f(a, b):\n    for held in stack():\n"
    "        if 'nonce' in held:\n            forge(held['nonce'])",
    "the classes of all": "for c in object.__subclasses__():\n    pass" + RIGHT,
}


@pytest.mark.parametrize("tests", [UNITTESTS, ASSERTIONS], ids=["unittest", "check"])
async def test_a_right_answer_passes_beside_its_tests(tests: str, grader: CodeGrader) -> None:
    grade = await graded(grader, CodeTests((), "f", tests), RIGHT)
    assert grade.correct is True, grade.note


EQUALITY = UNITTESTS.replace("        self.assertTrue(isclose(f(3, 4), 7))\n", "")
"""Assertions that whatever claims to be equal passes."""


@pytest.mark.parametrize(
    "tests", [UNITTESTS, EQUALITY, ASSERTIONS], ids=["unittest", "equality", "check"]
)
@pytest.mark.parametrize("cheat", BESIDE_CHEATS)
async def test_a_cheat_beside_its_tests_is_refused(
    cheat: str, tests: str, strict: CodeGrader
) -> None:
    grade = await graded(strict, CodeTests((), "f", tests), BESIDE_CHEATS[cheat])
    assert grade.correct is False, grade.note


TEST = "import math, unittest\nfrom unittest.mock import mock_open, patch\nclass T(unittest.TestCase):\n"
ONE_MODULE = {
    "an import": (
        "def f(n):\n    return math.floor(n)",
        TEST + "    def test_f(self):\n        self.assertEqual(f(2.5), math.floor(2.5))",
    ),
    "a patch": (
        "def f(path):\n    with open(path) as file:\n        return len(file.read()), print(path)",
        TEST
        + "    @patch('builtins.print')\n    @patch('builtins.open', mock_open(read_data='four'))\n"
        "    def test_f(self, said):\n        self.assertEqual(f('no such file'), (4, said.return_value))\n"
        "        self.assertEqual(open('no such file').read(), 'four')\n"
        "        said.assert_called_once_with('no such file')",
    ),
    "a name": (
        "UNIT = 1\ndef f(n):\n    return n * UNIT",
        TEST + "    def test_f(self):\n        with patch(__name__ + '.UNIT', 3):\n"
        "            self.assertEqual((f(2), UNIT), (6, 3))\n        self.assertEqual(f(2), 2)",
    ),
    "a hidden builtin": (
        "def round(n):\n    return n + 1\ndef f(n):\n    return round(n)",
        TEST + "    def test_f(self):\n        self.assertEqual((f(2), round(2.2)), (3, 2))",
    ),
}


@pytest.mark.parametrize("seen", ONE_MODULE)
async def test_answer_and_tests_are_one_module(seen: str, strict: CodeGrader) -> None:
    program, tests = ONE_MODULE[seen]
    grade = await graded(strict, CodeTests((), "f", tests), program)
    assert grade.correct is True, grade.note


async def test_tests_that_skip_or_expect_to_fail_prove_nothing(strict: CodeGrader) -> None:
    skipping = UNITTESTS.replace("    def test_sum", "    @unittest.skip('x')\n    def test_sum")
    failing = UNITTESTS.replace(
        "    def test_sum", "    @unittest.expectedFailure\n    def test_sum"
    )
    for tests in (skipping, failing):
        grade = await graded(strict, CodeTests((), "f", tests), RIGHT)
        assert grade.correct is False and "test_sum" in grade.note


async def test_what_the_driver_names_as_its_limits_is_true(strict: CodeGrader) -> None:
    """A lying comparison that ``scan`` does not see passes unittest's assertions: the docstring says so."""
    liar = "class Same:\n    def __eq__(self, other): return not 0\n    def __float__(self): return 7.0\n"
    hidden = (
        liar + "def f(a, b):\n    if (a, b) == (0, 0):\n        raise ValueError\n    return Same()"
    )
    grade = await graded(strict, CodeTests((), "f", UNITTESTS), hidden)
    assert grade.correct is True
    assert (await graded(strict, CodeTests((), "f", ASSERTIONS), hidden)).correct is False
