"""Play a system's plans elsewhere, and have them planned again.

``transplants`` plays whole plans otherwise, and ``again`` asks the planner once more.
"""
