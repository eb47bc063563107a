"""The report as one HTML file that needs nothing else: no network, no script, no other file.

In: a Report, drawn figures, and if wanted the Results it was made of. Out: a page for screens, light and dark, and for
paper; the same report and figures give the same bytes.

The page is ``page.html.j2`` with ``page.css``. Its content security policy forbids everything but that style sheet (by
its hash) and images that the page holds. Jinja escapes all text, so a worker named ``<script>`` is harmless.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from openconductor.errors import ConfigError, JournalError
from openconductor.evaluation.config import dump_eval_config
from openconductor.evaluation.records import MASKED, Results
from openconductor.evaluation.statistics import Difference, Estimate
from openconductor.evaluation.tables import latency, make_table
from openconductor.report import words
from openconductor.report.figures import heading, sections
from openconductor.report.orchestration import Level, Orchestration
from openconductor.report.report import Report
from openconductor.report.words import NOTHING, below, counted, interval, percent
from openconductor.storage import make_folder, write_whole

if TYPE_CHECKING:
    from openconductor.plots import Picture

INSTALL = 'pip install "openconductor[plots]"'
SHADES = 6
"""How many shades of a cell there are; the style sheet has a class for each."""
ABSENT = "not in this evaluation"


def write_page(
    report: Report,
    figures: Mapping[str, Picture],
    path: Path,
    *,
    results: Results | None = None,
    environment: Mapping[str, object] | None = None,
) -> None:
    """Write the report as one self-contained HTML file, whole or not at all.

    Args:
        report: what it says.
        figures: what ``plots.save_all`` has drawn, by the figure's name.
        path: where it goes; its folder is made where it is not there.
        results: what the report was made of: adds what the systems cost, and the recipe.
        environment: what the run's folder says about where it was made (``read_folder``): adds versions and the data.

    Raises:
        ConfigError: Jinja2 is not installed; the message says the command that installs it.
        JournalError: a figure cannot be read, or the page cannot be written.
    """
    text = render(report, figures, results=results, environment=environment)
    make_folder(path.parent)
    write_whole(path, text)


def render(
    report: Report,
    figures: Mapping[str, Picture],
    *,
    results: Results | None = None,
    environment: Mapping[str, object] | None = None,
) -> str:
    """The page's text; arguments and errors as for ``write_page``."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise ConfigError(f"page: {error}; expected the extra 'plots' to be installed: {INSTALL}") from error

    maker = Environment(
        loader=PackageLoader("openconductor.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    maker.filters["number"] = _number
    style = files("openconductor.report").joinpath("page.css").read_text("utf-8")
    found, parts = report.orchestration, list(sections(report))
    best = found.best_single.accuracy if found.best_single is not None else None
    placed = {name for part in parts for name in part.figures}
    text = maker.get_template("page.html.j2").render(
        report=report,
        found=found,
        heading=heading(report),
        style=style,
        digest=b64encode(sha256(style.encode()).digest()).decode(),
        decided=_decided(found),
        glance=_glance(found),
        held=None if best is None else best.value,
        sections=parts,
        figures=figures,
        more=[name for name in figures if name not in placed],
        results=results,
        table=None if results is None else make_table(results),
        seconds={} if results is None else {(one["system"], one["task"]): one for one in latency(results)},
        environment=environment or {},
        recipe=None if results is None else dump_eval_config(results.config),
        words=words,
        scale=_scale,
        place=_place,
        shade=_shade,
        slug=_slug,
        address=_address,
    )
    # No HTML may hold control characters or lone surrogates.
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text.lstrip())


def _address(picture: Picture) -> str:
    """The figure's own bytes as an address. Shown as an image, no script in it could run."""
    try:
        content = picture.svg.read_bytes()
    except OSError as error:
        raise JournalError(f"figure {picture.svg}: could not be read: {error.strerror or error}") from error
    return f"data:image/svg+xml;base64,{b64encode(content).decode()}"


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _shade(one: Estimate) -> int:
    """Which shade a share has, from 0; darker is more."""
    return min(SHADES - 1, int(one.value * SHADES))


def _scale(differences: Sequence[Difference | None]) -> tuple[float, float] | None:
    """The ends of a scale for differences, whole tens of points about 0; None where there is nothing to compare."""
    known = [one for one in differences if one is not None]
    if len(known) < 2:
        return None
    least, most = min(one.low for one in known), max(one.high for one in known)
    return min(0.0, math.floor(10 * least) / 10), max(0.0, math.ceil(10 * most) / 10)


def _place(value: float, scale: tuple[float, float]) -> float:
    """Where a value is on a scale, from 0 to 100."""
    least, most = scale
    return round(100 * min(max((value - least) / (most - least), 0.0), 1.0), 2) if most > least else 50.0


# ── what it says beside the report's sections ────────────────────────────────────────────────────────────────────────
def _decided(found: Orchestration) -> str:
    """How much of what was asked could be decided, in one sentence."""
    counts = found.counts[found.system]
    lost, wrong = (
        ", ".join(f"{counts[status]:,} {status}" for status in some if counts.get(status))
        for some in (MASKED, ("unparsed", "invalid", "refused"))
    )
    said = f"{counted(counts['records'], 'answer')}: {counts['records'] - found.masked:,} decided"
    said += f" ({wrong} among the wrong)" if wrong else ""
    return f"{said}, {found.masked:,} not" + (f" ({lost})." if lost else ".")


class Glance(NamedTuple):
    """A row of the first table: a figure and its interval; or none, and ``span`` says why.

    ``share`` is drawn where there is one.
    """

    name: str
    value: str
    span: str
    share: Estimate | None = None


def _glance(found: Orchestration) -> Iterator[Glance]:
    """Validity, accuracy, what that is held against, regret, headroom, entropy."""

    def share(name: str, one: Estimate | None, why: str = ABSENT) -> Glance:
        return Glance(name, NOTHING, why) if one is None else Glance(name, f"{percent(one)} %", interval(one), one)

    def level(name: str, one: Level | None) -> Glance:
        if one is None or one.accuracy is None:
            return Glance(name, NOTHING, ABSENT)
        plain = one.system in {name, "best_fixed", "random"}
        return share(name if plain else f"{name} ({one.name})", one.accuracy)

    yield share("valid plans", found.validity, found.no_validity)
    yield share("right, of the valid plans", found.given_valid, "no valid plan was decided")
    yield share(f"right: {found.system}", found.accuracy, "nothing was decided")
    yield level("best worker alone, chosen on these questions", found.best_single)
    yield level("best worker alone, chosen on other questions", found.best_fitted)
    rival = found.effort
    if rival is None:
        yield Glance("best worker at equal cost", NOTHING, "costs or workers alone are not known")
    else:
        what = "best worker at about equal cost" if rival.equal else "best worker's vote that is nearest in cost"
        yield share(f"{what} ({rival.name}, {rival.cost:.2f} times in {rival.unit})", rival.accuracy)
    yield level("best fixed workflow", found.best_fixed)
    yield level("random workflows", found.random)
    yield level("oracle", found.oracle)
    lead, won, entropy = found.oracle and found.oracle.lead, found.captured, found.routing.whole.entropy
    regret = (NOTHING, "no oracle was evaluated on these questions") if lead is None else below(lead)
    yield Glance("regret: points below the oracle", *regret)
    captured = (NOTHING, "no headroom, or nothing to measure it by")
    if won is not None:
        ends = (won.low, won.high)
        bounds = " to ".join(f"{100 * end:.0f}" for end in ends if end is not None)
        captured = (f"{100 * won.value:.0f} %", bounds or "not bounded")
    yield Glance("share of the oracle's headroom that is won", *captured)
    bits = (NOTHING, "no step was planned")
    if entropy is not None:
        bits = (f"{entropy.value:.2f}", f"{entropy.low:.2f} to {entropy.high:.2f}")
    yield Glance(f"routing entropy, in bits of at most {found.routing.most_bits:.2f}", *bits)


# ── how it was made ──────────────────────────────────────────────────────────────────────────────────────────────────
def _number(value: object) -> str:
    """A number with three digits that count.

    >>> [_number(value) for value in (None, 0.000012345, 0.0, 3.6499, 123.4, 123456.7)]
    ['-', '0.0000123', '0', '3.65', '123', '123,457']
    """
    if not isinstance(value, int | float):
        return NOTHING
    if value >= 100:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    digits = max(0, 2 - int(f"{value:e}".partition("e")[2]))
    return f"{value:.{digits}f}"
