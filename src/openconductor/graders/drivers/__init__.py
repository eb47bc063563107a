"""Programs that the code grader sends into a sandbox to run a problem's test program.

``tests`` and ``answer`` run in two processes: the test program in one that never runs the answer's
code, the answer in the other. ``beside`` runs both in one process. ``cases`` holds what ``tests``
and ``beside`` share. Each is sent as text, so none of them imports another.
"""
