"""Benchmarks that are made of rows: reading them, giving them a shape, and choosing among them.

``rows`` reads files, ``dataset`` makes a task of them, ``selection`` draws and splits questions,
and ``items`` is what a task holds.
"""
