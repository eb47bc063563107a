"""Formulas, read and compared in worker processes that can be killed.

``math_text`` prepares what is compared, by the tables of ``rewrites``. ``math_workers`` keeps the
processes, whose program is ``math_worker``: ``formula_groups`` and ``formula_reader`` read
values, those of several parts as ``formula_sets`` has them; ``formula_equality`` and
``formula_values`` compare.
"""
