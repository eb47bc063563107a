"""The page: episodes in a browser, drawn and rendered here in Python, read from a store.

``parts`` turns an episode into what is drawn, ``graph`` and ``timeline`` lay it out, ``pages``
renders the templates, ``site`` answers requests, and ``door`` decides who may look.
"""
