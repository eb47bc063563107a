"""Correct programs in unusual styles are right in both modes: they have real descriptors and a process of their own."""

from __future__ import annotations

from typing import get_args

import pytest

from openconductor.graders.code import CodeGrader
from openconductor.graders.code_compare import Mode
from openconductor.graders.code_tests import CallTest, CodeTests, IoTest
from openconductor.sandboxes import Sandbox
from openconductor.types import Problem

SUM = CodeTests(
    (IoTest("2 3\n", "5\n"), IoTest("-1 1\n", "0\n"), IoTest(f"{10**30} 1\n", f"{10**30 + 1}\n"))
)
BIG = CodeTests((IoTest("200000\n", "".join(f"{number}\n" for number in range(100_000))),))
LONG = CodeTests((IoTest(" ".join(["7"] * 300_000), "2100000"),))
EMPTY = CodeTests((IoTest("", "nothing"),))
TWICE = CodeTests((CallTest((3,), 6), CallTest((), 8, {"n": 4})), "twice")
ADD = CodeTests((CallTest((1, 2), 3), CallTest((), 4, {"a": 2, "b": 2})), "add")

SUMS = {
    "input": "a, b = map(int, input().split())\nprint(a + b)",
    "iteration over stdin": "import sys\nfor line in sys.stdin:\n    print(sum(map(int, line.split())))",
    "open(0)": "print(sum(map(int, open(0).read().split())))",
    "open of /dev/stdin": "print(sum(map(int, open('/dev/stdin').read().split())))",
    "os.read and os.write": "import os\nos.write(1, str(sum(map(int, os.read(0, 1000).split()))).encode())",
    "stdin.buffer": "import sys\nprint(sum(map(int, sys.stdin.buffer.readline().split())))",
    "stdout.buffer": "import sys\nsys.stdout.buffer.write(b'%d' % sum(map(int, sys.stdin.read().split())))",
    "stdout.write without a newline": "import sys\nsys.stdout.write(str(sum(map(int, input().split()))))",
    "readlines": "import sys\nprint(*[sum(map(int, line.split())) for line in sys.stdin.readlines()])",
    "BytesIO over a descriptor": "import io, os\n"
    "input = io.BytesIO(os.read(0, os.fstat(0).st_size or 1 << 16)).readline\n"
    "print(sum(map(int, input().split())))",
    "print to a rebound stdout": "import io, sys\n"
    "out, sys.stdout = sys.stdout, io.StringIO()\nprint(sum(map(int, input().split())))\n"
    "out.write(sys.stdout.getvalue())",
    "an own writer on descriptor 1": "import os\nout = os.fdopen(1, 'w', closefd=False)\n"
    "out.write(str(sum(map(int, input().split()))))",
    "output when an object goes": "class Last:\n    def __del__(self):\n"
    "        print(self.n)\nlast = Last()\nlast.n = sum(map(int, input().split()))",
    "global": "n = 0\ndef main():\n    global n\n    n = sum(map(int, input().split()))\nmain()\nprint(n)",
    "main guard": "def f():\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    f()",
    "exit() in main": "def main():\n    print(sum(map(int, input().split())))\n    exit()\nmain()\nprint('no')",
    "sys.exit(0)": "import sys\nprint(sum(map(int, input().split())))\nsys.exit(0)",
    "quit()": "print(sum(map(int, input().split())))\nquit()",
    "os._exit after a flush": "import os\nprint(sum(map(int, input().split())), flush=True)\nos._exit(0)",
    "a thread with a large stack": "import sys, threading\nsys.setrecursionlimit(10**6)\n"
    "threading.stack_size(1 << 28)\ndef main():\n    print(sum(map(int, input().split())))\n"
    "thread = threading.Thread(target=main)\nthread.start()\nthread.join()",
    "a thread that nobody joins": "import threading, time\ndef main():\n"
    "    time.sleep(0.05)\n    print(sum(map(int, input().split())))\n"
    "threading.Thread(target=main).start()",
    "atexit": "import atexit\natexit.register(lambda: print(sum(map(int, input().split()))))",
    "a pool of processes": "from multiprocessing import Pool\nif __name__ == '__main__':\n"
    "    with Pool(2) as pool:\n        print(sum(pool.map(int, input().split())))",
    "a subprocess": "import subprocess, sys\n"
    "add = 'print(sum(map(int, input().split())))'\n"
    "print(subprocess.run([sys.executable, '-c', add], input=input(), text=True, capture_output=True).stdout)",
    "fork": "import os\nline = input()\nif os.fork() == 0:\n"
    "    print(sum(map(int, line.split())))\nelse:\n    os.wait()",
    "asyncio": "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n"
    "    print(sum(map(int, input().split())))\nasyncio.run(main())",
    "a class and recursion": "import sys\nsys.setrecursionlimit(200000)\nclass Adder:\n"
    "    def go(self, n, left):\n        return n if left == 0 else self.go(n, left - 1)\n"
    "print(Adder().go(sum(map(int, input().split())), 50000))",
    "recursion through C": "import sys\nfrom functools import lru_cache\n"
    "sys.setrecursionlimit(10**6)\n@lru_cache(None)\ndef f(n):\n    return 0 if n == 0 else f(n - 1)\n"
    "print(sum(map(int, input().split())) + f(15000))",
    "from __future__ and a docstring": '"""Adds."""\nfrom __future__ import annotations\n'
    "def f(x: Undefined) -> None: ...\nprint(sum(map(int, input().split())))",
    "annotations that are evaluated": "from dataclasses import dataclass, fields\n"
    "@dataclass\nclass Pair:\n    a: int\n    b: int\nassert fields(Pair)[0].type is int\n"
    "pair = Pair(*map(int, input().split()))\nprint(pair.a + pair.b)",
    "pickle of an own class": "import pickle\nclass Box:\n    pass\nbox = Box()\n"
    "box.n = sum(map(int, input().split()))\nprint(pickle.loads(pickle.dumps(box)).n)",
    "a file in the working folder": "with open('numbers.txt', 'w') as file:\n"
    "    file.write(input())\nwith open('numbers.txt') as file:\n"
    "    print(sum(map(int, file.read().split())))",
    "tempfile": "import tempfile\nwith tempfile.TemporaryFile('w+') as file:\n"
    "    file.write(input())\n    file.seek(0)\n    print(sum(map(int, file.read().split())))",
    "talk on stderr": "import sys\nprint('debug', file=sys.stderr)\nprint(sum(map(int, input().split())))",
    "decimals": "print(sum(map(int, input().split())), end='.0')",
    "exec": "exec('print(sum(map(int, input().split())))')",
}
FUNCTIONS = {
    "a function": "def twice(n): return 2 * n",
    "a lambda": "twice = lambda n: n * 2",
    "a Solution": "class Solution:\n    def twice(self, n: int) -> int:\n        return n + n",
    "a Solution with state": "class Solution:\n    def __init__(self):\n"
    "        self.two = 2\n    def twice(self, n):\n        return n * self.two",
    "output beside the value": "def twice(n):\n    print('noise')\n    return 2 * n",
    "a cached function": "import functools\n@functools.cache\ndef twice(n): return 2 * n",
    "a partial": "import functools, operator\ndef twice(n): return functools.partial(operator.mul, 2)(n)",
    "a subclass of int": "class Number(int): pass\ndef twice(n): return Number(2 * n)",
    "a guard that reads input": "def twice(n): return 2 * n\nif __name__ == '__main__':\n    twice(int(input()))",
    "a thread": "import threading\ndef twice(n):\n    out = []\n"
    "    t = threading.Thread(target=lambda: out.append(2 * n))\n    t.start(); t.join()\n"
    "    return out[0]",
}
STYLES = {name: (SUM, program) for name, program in SUMS.items()}
STYLES |= {name: (TWICE, program) for name, program in FUNCTIONS.items()}
STYLES |= {
    "big output": (BIG, "n = int(input())\nfor number in range(n // 2):\n    print(number)"),
    "big output at once": (BIG, "print('\\n'.join(map(str, range(int(input()) // 2))))"),
    "big input": (LONG, "print(sum(map(int, input().split())))"),
    "input that is not read": (LONG, "print(2100000)"),
    "empty input": (EMPTY, "import sys\nprint(sys.stdin.read() or 'nothing')"),
    "end of input": (EMPTY, "try:\n    input()\nexcept EOFError:\n    print('nothing')"),
    # ``from operator import *`` of the preamble brings another function of this name.
    "a method of the preamble's name": (
        ADD,
        "class Solution:\n    def add(self, a, b):\n        return a + b",
    ),
}


@pytest.fixture(scope="module", params=get_args(Mode))
def grader(request: pytest.FixtureRequest, sandbox: Sandbox) -> CodeGrader:
    return CodeGrader(request.param, sandbox)


@pytest.mark.parametrize("style", STYLES)
async def test_a_program_in_this_style_is_right(style: str, grader: CodeGrader) -> None:
    tests, program = STYLES[style]
    grade = await grader.grade(Problem(style, "", tests, "styles"), f"```python\n{program}\n```")
    assert grade.correct is True, grade.note
