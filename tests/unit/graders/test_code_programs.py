"""What is read off the text of a test program: its tests, and what it imports."""

from __future__ import annotations

from openconductor.graders import code_programs
from openconductor.graders.code_programs import imported_by
from openconductor.graders.unittest_driver import CHECK, WHOLE


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
    assert code_programs.tests_of(text) == tuple(names.split())
    assert code_programs.tests_of("def check(f): assert f(1)") == (CHECK,)
    assert code_programs.tests_of("assert f(1)") == code_programs.tests_of("def check(): assert f(1)") == (WHOLE,)


def test_the_modules_that_a_program_imports_are_known_before_it_runs() -> None:
    text = "from __future__ import annotations\nimport a.b.c\nfrom d import e\ndef f():\n    import g as h\n"
    text += "from . import i"
    assert imported_by(text) == ("os", "os.path", "sys", "a.b.c", "g", "d", "d.e", "a.b", "a")
