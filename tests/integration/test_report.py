"""``openconductor report`` and ``pool headroom`` from one command, over the gym's workers: no network, no key."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from openconductor import cli
from openconductor.evaluation import counterfactual
from openconductor.evaluation.records import Results
from openconductor.gym.bundled import bundled_folder
from openconductor.report.replays import replay_plans
from openconductor.store import JournalReader

pytest.importorskip("numpy")
pytest.importorskip("safetensors")

RECIPE = """
name = "tiny"
systems = ["conductor", "workers", "random", "best_fixed", "oracle"]
repeats = {repeats}
seed = {seed}
[[task]]
name = "gym"
limit = {limit}
"""
LABELS = (
    "orchestration gain",
    "format gain only",
    "collapse",
    "answers itself",
    "gain by more calls only",
    "no gain",
    "undecided",
)


def recipe(folder: Path, *, limit: int = 48, repeats: int = 1, seed: int = 3) -> Path:
    path = folder / f"recipe{limit}-{repeats}-{seed}.toml"
    path.write_text(RECIPE.format(limit=limit, repeats=repeats, seed=seed))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the gym, evaluated and reported on by one command."""
    place = tmp_path_factory.mktemp("report")
    assert cli.main(["report", str(recipe(place)), "--out", str(place / "run")]) == 0
    return place / "run"


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes seconds, and the run above has drawn everything."""
    monkeypatch.setattr("openconductor.report.page.can_draw", lambda: False)


def read(run: Any, *words: object) -> dict[str, Any]:
    ran = run(*words, "--json")
    assert ran.code == 0
    return ran.json()  # pure: nothing else on stdout


# ── report ────────────────────────────────────────────────────────────────────────────────────────
def test_one_command_evaluates_a_recipe_and_writes_the_report_the_page_and_the_figures(
    made: Path,
) -> None:
    values = json.loads((made / "report" / "report.json").read_text())
    assert values["verdict"] == "undecided (not enough to compare with)"
    assert "consensus:lister?n=" in values["line"], "what would be a fair rival is named"
    page = (made / "report" / "report.html").read_text()
    assert values["line"].split(":")[0] in page
    assert not re.search(r"""(?:src|href)\s*=\s*["']?https?:""", page), (
        "the page needs nothing from elsewhere"
    )
    pytest.importorskip("matplotlib")
    figures = {path.name for path in (made / "report" / "figures").iterdir()}
    assert {
        "accuracy_cost.svg",
        "accuracy_cost.png",
        "worker_kind.svg",
        "workflow_length.svg",
    } <= figures
    assert (made / "table.json").is_file()


def test_the_verdict_is_the_first_line(made: Path, run: Any) -> None:
    ran = run("report", made, "--counterfactual", "0")
    assert ran.code == 0
    assert ran.out.startswith(LABELS)
    assert "Where it stands" in ran.out
    assert "report.json" in ran.err
    assert "\x1b[" not in ran.out, "no colour where no terminal is"


def test_json_is_the_report_file_and_says_where_the_files_are(made: Path, run: Any) -> None:
    values = read(run, "report", str(made))
    files = values.pop("files")
    assert values == json.loads(Path(files["report"]).read_text())
    assert files["page"] is None, "without the extra there is neither a page nor a figure"
    assert values["questions"] == 48
    assert values["counterfactuals"]["replays"] > 48, (
        "in the gym replays are free, so they are made"
    )
    assert values["change"] is None


def test_a_second_report_resumes_and_any_system_can_be_reported_on_anywhere(
    made, tmp_path, run
) -> None:
    before = (made / "journal.sqlite").stat().st_size
    assert read(run, "report", str(recipe(made.parent)), "--out", str(made))["missing"] == 0
    assert (made / "journal.sqlite").stat().st_size == before, "nothing was asked again"
    values = read(
        run, "report", str(made), "--system", "best_fixed", "--out", str(tmp_path / "there")
    )
    assert values["system"] == "best_fixed"
    assert values["verdict"] != "orchestration gain", "a constant plan orchestrates nothing"
    assert (tmp_path / "there" / "report.json").is_file()


def test_the_same_evaluation_before_is_compared_with(made: Path, run: Any) -> None:
    values = read(run, "report", str(made), "--before", str(made), "--counterfactual", "0")
    assert values["change"]["questions"] == 48
    assert values["change"]["accuracy"]["value"] == 0
    assert values["answers"]["format only"] == "no"


def test_what_a_training_began_from_is_evaluated_on_the_same_questions_and_its_study_is_shown(
    made, tmp_path, run
) -> None:
    seed = Path(shutil.copytree(bundled_folder() / "run", tmp_path / "study" / "seed-11"))
    shutil.copytree(bundled_folder() / "cold_start", seed / "cold_start")
    study = {"rows": [], "levels": {}, "learnt": 1, "seeds": 1}
    (tmp_path / "study" / "study.json").write_text(json.dumps(study))
    values = read(
        run, "report", made, "--before", seed, "--training", seed, "--counterfactual", "0"
    )
    assert (values["change"]["questions"], values["answers"]["format only"]) == (48, "no")
    assert values["change"]["before"]["value"] < 0.3 < values["change"]["accuracy"]["value"]
    assert (made / "before" / "table.json").is_file()
    assert values["training"]["study"] == study | {"run": "seed-11"}
    assert (
        values["training"]["terms"]
        == "In the training each question offered 4 to 8 of the workers."
    )
    again = run("report", made, "--before", seed, "--counterfactual", "0", "--json")
    assert again.json()["change"] == values["change"], "it is evaluated once"


def test_an_evaluation_of_other_questions_or_workers_is_refused_though_the_ids_are_the_same(
    made: Path, tmp_path: Path, run: Any
) -> None:
    other = tmp_path / "other"
    assert (
        cli.main(
            ["report", str(recipe(tmp_path, seed=4)), "--out", str(other), "--counterfactual", "0"]
        )
        == 0
    )
    workers = Path(shutil.copytree(made, tmp_path / "workers"))
    environment = json.loads((workers / "environment.json").read_text())
    environment["inputs"]["workers"][0]["identity"] = "somebody else"
    (workers / "environment.json").write_text(json.dumps(environment))
    for before, why in ((other, "other questions"), (workers, "other workers")):
        ran = run("report", made, "--before", before)
        assert (ran.code, ran.out, why in ran.err) == (2, "", True)


def test_what_is_not_there_is_said(made: Path, tmp_path: Path, root: Path, run: Any) -> None:
    for words, why in (
        (("report", str(tmp_path)), "expected the folder of an evaluation"),
        (("report", str(tmp_path / "nothing")), "does not exist"),
        (("report", str(made), "--system", "condutor"), "expected one of conductor"),
        (("report", str(made), "--budget-dollars", "much"), "expected an amount"),
        (("report", str(made), "--counterfactual", "0", "--training", str(tmp_path)), "curve"),
        (("report", str(made), "--nonsense"), "--nonsense"),
        (("report", str(root / "recipes" / "gym.toml")), "recipe of `openconductor train`"),
    ):
        ran = run(*words)
        assert (ran.code, ran.out) == (2, ""), words
        assert why in ran.err


# ── replays over workers ──────────────────────────────────────────────────────────────────────────
@pytest.fixture
def paid(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run whose replays go to the workers, as those of any other pool do, and not to exact chances."""
    monkeypatch.setattr("openconductor.evaluation.eval_config.EvalConfig.simulated", False)
    return Path(shutil.copytree(made, tmp_path / "paid"))


def replay_calls(folder: Path) -> int:
    with JournalReader(folder / "counterfactual.sqlite") as journal:
        return journal.totals().spent.calls


async def test_replays_pay_for_new_calls_once_and_for_those_of_the_evaluation_never(
    paid, monkeypatch
) -> None:
    results = Results.load(paid)
    with monkeypatch.context() as patched:  # nothing is edited
        for name in ("_edits", "_shuffled"):
            patched.setattr(counterfactual, name, lambda *some: ())
        found = await replay_plans(results, paid)
    unedited = [one.correct for one in results.of("conductor") if one.workflows]
    assert found.unedited is not None
    refused = sum(one.status == "refused" for one in results.of("conductor"))
    assert replay_calls(paid) == refused, (
        "only a refusal is no completion that could be found in the journal"
    )
    assert found.unedited.value == pytest.approx(sum(map(bool, unedited)) / len(unedited)), (
        "with the same answers"
    )
    some = await replay_plans(results, paid, limit=6)
    calls = replay_calls(paid)
    again = await replay_plans(results, paid, limit=6)
    assert replay_calls(paid) - calls < (calls - refused) / 4, "refusals again, and nothing else"
    assert again == some


def test_replays_stop_at_their_budget_and_go_on_from_there(paid: Path, run: Any) -> None:
    words = ("report", str(paid), "--counterfactual", "6")
    ran = run(*words, "--budget-dollars", "0.0005")
    assert (ran.code, ran.out) == (1, "")
    assert "budget" in ran.err
    begun = replay_calls(paid)
    assert begun > 0
    values = read(run, *words)
    assert values["counterfactuals"]["replays"] > 6
    assert replay_calls(paid) > begun
    unasked = run("report", str(paid), "--budget-dollars", "0.0005", "--json")
    assert (unasked.code, unasked.json()["counterfactuals"]) == (0, None)
    assert "no replays" in unasked.err


# ── pool headroom ─────────────────────────────────────────────────────────────────────────────────
def test_headroom_asks_every_worker_alone_and_goes_on_where_it_was_cut_off(
    tmp_path: Path, run: Any
) -> None:
    words = (
        "pool",
        "headroom",
        "--task",
        "gym",
        "--limit",
        "20",
        "--repeats",
        "2",
        "--out",
        str(tmp_path / "h"),
    )
    partial = run(*words, "--budget-calls", "100", "--json")
    assert (partial.code, "budget" in partial.err) == (1, True), "the budget was spent first"
    assert 0 < partial.json()["missing"] < 320
    values = read(run, *words, "--budget-calls", "320")
    assert values["missing"] == 0
    assert len(values["matrix"]["workers"]) == 8
    assert len(values["matrix"]["right"]) == 20
    assert values["repeats"] == 2
    assert values["oracle_corrected"]["value"] <= values["oracle_naive"]["value"]


def test_headroom_says_how_many_questions_show_a_gain(tmp_path: Path, run: Any) -> None:
    words = ("pool", "headroom", "--limit", "12", "--repeats", "1", "--out", str(tmp_path / "h"))
    values = read(run, *words, "--gain", "3", "--gain", "10")
    assert [one["gain"] for one in values["needed"]] == [0.03, 0.1]
    assert values["needed"][0]["questions"] > values["needed"][1]["questions"]
    ran = run(*words)
    assert ran.code == 0
    assert ran.out.startswith("choosing the right worker for each question could gain")
    assert "ask each question at least twice" in " ".join(ran.out.split())
    ran = run("report", tmp_path / "h")
    assert (ran.code, ran.out, "no system here writes plans" in ran.err) == (2, "", True)


def test_headroom_without_a_cent_says_that_the_budget_was_the_cause(
    tmp_path: Path, run: Any
) -> None:
    words = ("pool", "headroom", "--budget-dollars", "0", "--limit", "3", "--concurrency", "1")
    ran = run(*words, "--out", tmp_path / "h")
    assert (ran.code, ran.out) == (1, "")
    assert "the evaluation's budget is spent" in ran.err
    assert "could be decided" not in ran.err


def test_headroom_refuses_what_makes_no_sense(tmp_path: Path, run: Any) -> None:
    for words, why in (
        (("--gain", "0"), "--gain"),
        (("--task", "gim"), "gym"),
        ((str(tmp_path / "none.toml"),), "none.toml"),
        (("--budget-dollars", "-1"), "--budget-dollars"),
        (("--seed", "-1"), "--seed"),
        (("--task", "math500"), "expected a pool file"),
    ):
        ran = run("pool", "headroom", *words, "--limit", "5", "--out", tmp_path / "h")
        assert (ran.code, ran.out) == (2, ""), words
        assert why in ran.err
