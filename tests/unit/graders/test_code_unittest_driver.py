"""What only cheats need is found in an answer's text; what ordinary programs hold is not."""

from __future__ import annotations

import ast

import pytest

from openconductor.graders import unittest_driver as driver
from openconductor.graders.unittest_driver import check, scan

HONEST = """
import os, re, inspect, unittest, sys
from collections import Counter
class Point:
    def __init__(self, x): self.x = x
    def __eq__(self, other): return self.x == other.x
    def __bool__(self): return True
def task_func(n):
    "Run with python -m unittest; see unittest.mock."
    try:
        return Counter(str(n)), inspect.signature(task_func), os.environ.get("builtins")
    except Exception as error:
        print(error, file=sys.stderr)
if __name__ == "__main__":
    unittest.main()
"""


def test_an_honest_answer_is_not_suspicious() -> None:
    assert scan(HONEST) == []
    assert scan("def f(:") == [] and scan("\0") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys\nsys._getframe()", "uses _getframe"),
        ("from sys import _getframe as g", "uses _getframe"),
        ("getattr(x, '_getframe')", "names '_getframe'"),
        ("try: 1/0\nexcept Exception as e: e.__traceback__.tb_frame", "uses tb_frame"),
        ("import inspect\ninspect.stack()", "uses inspect.stack"),
        ("import gc", "imports gc"),
        ("from ctypes import util", "imports ctypes"),
        ("import ctypes.util as u", "imports ctypes.util"),
        ("class A:\n    def __eq__(self, o): return True", "__eq__ is always true"),
        ("class A:\n    def __lt__(self, o):\n        return 1", "__lt__ is always true"),
        ("class A:\n    __eq__ = lambda s, o: True", "sets __eq__"),
        ("A = type('A', (), {'__eq__': f})", "names '__eq__'"),
        ("import unittest\nunittest.TestCase.run = f", "writes to unittest"),
        ("import unittest as u\nu.TestCase.run = f", "writes to u"),
        ("from unittest import TestCase as T\nT.assertEqual = f", "writes to T"),
        ("from unittest.case import TestCase\ndel TestCase.run", "writes to TestCase"),
        ("import unittest\nsetattr(unittest.TestCase, 'run', f)", "writes to unittest"),
        ("import builtins\nbuiltins.len = f", "writes to builtins"),
        ("__builtins__['len'] = f", "uses __builtins__"),
        ("mock.patch('unittest.TestCase.run')", "names 'unittest.TestCase.run'"),
        ("object.__subclasses__()", "uses __subclasses__"),
        ("import traceback\nfor f, _ in traceback.walk_stack(None): pass", "uses walk_stack"),
        ("from inspect import getargvalues", "uses getargvalues"),
        ("from unittest.mock import ANY as same", "imports ANY"),
        ("from unittest.mock import *", "imports ANY"),
        ("from unittest import mock as m\nm.ANY", "uses m.ANY"),
        ("m.__eq__.return_value = True", "sets __eq__"),
        ("m.__eq__ = f", "sets __eq__"),
        ("MagicMock(__lt__=f)", "sets __lt__"),
        ("m.configure_mock(**{'__eq__.return_value': True})", "names '__eq__.return_value'"),
    ],
)
def test_what_only_cheats_need_is_found(text: str, said: str) -> None:
    assert said in scan(text)


def test_a_suspicious_answer_is_reported_before_any_of_it_is_run() -> None:
    found = check("raise SystemExit\nimport gc", "", "f", "n")
    assert found == {"nonce": "n", "fault": "suspicious: imports gc"}


def test_the_tests_of_a_program_are_named_in_unittests_order() -> None:
    text = """
import unittest
from unittest import TestCase, IsolatedAsyncioTestCase
class Base(unittest.TestCase):
    def test_b(self): ...
    def test_a(self): ...
    def helper(self): ...
class More(Base):
    async def test_c(self): ...
class Other(IsolatedAsyncioTestCase):
    def test_d(self): ...
class Plain:
    def test_e(self): ...
"""
    names = "Base.test_a Base.test_b More.test_a More.test_b More.test_c Other.test_d"
    assert [".".join(case) for case in driver.tests_of(ast.parse(text))] == names.split()
    assert driver.tests_of(ast.parse("def check(f): assert f(1)")) == []


def test_the_modules_that_a_program_imports_are_known_before_it_runs() -> None:
    text = "from __future__ import annotations\nimport a.b.c\nfrom d import e\ndef f():\n    import g as h\n"
    assert set(driver.imported_by(ast.parse(text + "from . import i"))) == {"a.b.c", "g", "d", "d.e"}
