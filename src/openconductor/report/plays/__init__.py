"""What becomes of a system's plans elsewhere, and when they are planned again.

``transplants`` plays whole plans otherwise, and ``again`` asks the planner once more.
"""
