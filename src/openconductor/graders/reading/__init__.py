"""Reads replies as chat models write them.

``blocks`` finds blocks of code, ``snippet`` knows what a block defines and needs, and ``program``
decides which of them are the program. ``letter`` finds the letter that a reply answers,
and ``wording`` compares answers in words.
"""
