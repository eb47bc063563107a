"""The page: episodes in a browser, drawn and rendered here in Python, read from a store.

``parts`` turns an episode into what is drawn, ``graph`` and ``timeline`` lay it out, ``pages``
renders the templates, ``episodes`` makes the pages, ``site`` gives them addresses, ``changes``
tells open pages what is new, and ``door`` and ``entrance`` let visitors in.
"""
