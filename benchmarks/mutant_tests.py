"""A pytest plugin for ``benchmarks.mutants``: it maps tests to lines, or runs some tests.

``MUTANT_RECORD`` names the file that gets the tests' times and fixtures; the lines are in the data
of coverage, whose context is the test or the shared fixture that runs. ``MUTANT_TESTS`` names a
file of test times: only these tests run, in its order, and each has a deadline. ``MUTANT_FAILED``
names the file that gets the first test that fails.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

RECORD = os.environ.get("MUTANT_RECORD")
TESTS = os.environ.get("MUTANT_TESTS")
FAILED = os.environ.get("MUTANT_FAILED")
DEADLINE = 20.0  # seconds that any test may take
MULTIPLE = 10.0  # and how often its known time
MEMORY = 8 << 30  # bytes of data that a process may have: a mutant may collect without end

seconds: dict[str, float] = {}
fixtures: dict[str, list[str]] = {}
failed: set[str] = set()

if TESTS is not None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that are asked for, in their order."""
    if TESTS is None:
        return
    known: dict[str, float] = json.loads(Path(TESTS).read_text("utf-8"))
    by_name = {item.nodeid: item for item in items}
    items[:] = [by_name[name] for name in known if name in by_name]
    for item in items:
        deadline = max(DEADLINE, MULTIPLE * known[item.nodeid])
        item.add_marker(pytest.mark.timeout(deadline), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Give the lines that a test runs its name."""
    _switch(item.nodeid)
    fixtures[item.nodeid] = list(getattr(item, "fixturenames", ()))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Iterator[None]:
    """Give the lines that make a shared fixture its name: each test that uses it runs them."""
    if fixturedef.scope == "function":
        return (yield)
    outer = os.environ.get("MUTANT_CONTEXT", "")
    _switch(f"fixture {fixturedef.argname}")
    try:
        return (yield)
    finally:
        _switch(outer)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the time of a test, and whether a part of it failed or was skipped."""
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    if not report.passed:
        if report.failed and not failed and FAILED is not None:
            Path(FAILED).write_text(report.nodeid, "utf-8")
        failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write what was recorded."""
    if RECORD is not None:
        passed = {name: spent for name, spent in seconds.items() if name not in failed}
        record = {"seconds": passed, "fixtures": fixtures}
        Path(RECORD).write_text(json.dumps(record), "utf-8")


def _switch(context: str) -> None:
    """Name what runs from here on, in this process and in those that it starts."""
    if RECORD is None:
        return
    import coverage

    os.environ["MUTANT_CONTEXT"] = context
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.switch_context(context)
