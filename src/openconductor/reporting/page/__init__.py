"""The report as one HTML file that needs nothing else: no network, no script, no other file.

In: a Report, the files of its figures, and if wanted the Results it was made of. Out: a page for screens, light and
dark, and for paper.
"""

from openconductor.reporting.page.document import render, write_page

__all__ = ["render", "write_page"]
