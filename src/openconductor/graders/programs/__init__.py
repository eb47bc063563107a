"""Finds the program in a reply, as chat models write replies.

``blocks`` finds blocks of code, ``snippet`` knows what a block defines and needs, and ``choose``
decides which of them are the program.
"""
