"""HTTP/1.1 on llhttp, and the wire of chat completions: the base of ``openai_compatible``.

``http_connection`` is one connection, ``http`` a client with a pool of them. ``chat`` reads and
writes the bodies and streams of chat completions, and ``failures`` gives each failure its type.
"""
