"""``openconductor report`` and ``pool headroom`` over the gym's workers: no network, no key."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from openconductor import cli
from openconductor.evaluation import counterfactual
from openconductor.evaluation.records import Results
from openconductor.gym.bundled import bundled_folder
from openconductor.report import replays as replays_module
from openconductor.report.plays.transplants import Plays
from openconductor.report.replays import read_replays, replay_plans
from openconductor.store import read_store

pytest.importorskip("numpy")
pytest.importorskip("safetensors")

RECIPE = """
name = "tiny"
systems = ["conductor", "workers", "random", "best_fixed", "oracle"]
seed = {seed}
[[task]]
name = "gym"
limit = 48
"""
UNREPLAYED = ("--counterfactual", "0")


def recipe(folder: Path, *, seed: int = 3) -> Path:
    path = folder / f"recipe-{seed}.toml"
    path.write_text(RECIPE.format(seed=seed))
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
    assert not re.search(r"""(?:src|href)\s*=\s*["']?https?:""", page), "it needs nothing else"
    pytest.importorskip("matplotlib")
    figures = {path.stem for path in (made / "report" / "figures").glob("*.svg")}
    assert {"accuracy_cost", "worker_kind", "workflow_length"} <= figures
    assert (made / "table.json").is_file()


def test_the_first_line_is_in_plain_words_and_the_verdict_follows(made: Path, run: Any) -> None:
    ran = run("report", made, *UNREPLAYED)
    assert ran.code == 0
    first, _, rest = ran.out.partition("\nTo serve conductor, under the model name auto: open")
    assert re.match(r"Deploy conductor: right on \d+ % of the questions, \$0\.\d+ per 1,000", first)
    assert "undecided (" in rest.partition("Missing for a verdict")[0]
    assert "dollars" in rest.partition("Where it stands")[2]
    assert "Where it stands" in ran.out
    assert "report.json" in ran.err
    assert "\x1b[" not in ran.out, "no colour where no terminal is"


def test_json_is_the_report_file_and_says_where_the_files_are(made: Path, run: Any) -> None:
    values = read(run, "report", made)
    files = values.pop("files")
    assert values == json.loads(Path(files["report"]).read_text())
    assert files["page"] is None, "without the extra there is neither a page nor a figure"
    assert (values["questions"], values["change"]) == (48, None)
    assert values["counterfactuals"]["replays"] > 48, (
        "in the gym replays are free, so they are made"
    )


def test_a_second_report_resumes(made: Path, run: Any) -> None:
    before = (made / "journal.sqlite").stat().st_size
    assert read(run, "report", recipe(made.parent), "--out", made)["missing"] == 0
    assert (made / "journal.sqlite").stat().st_size == before, "nothing was asked again"


def test_any_system_can_be_reported_on_anywhere(made: Path, tmp_path: Path, run: Any) -> None:
    values = read(run, "report", made, "--system", "best_fixed", "--out", tmp_path / "there")
    assert values["system"] == "best_fixed"
    assert values["verdict"] != "orchestration gain", "a constant plan orchestrates nothing"
    assert (tmp_path / "there" / "report.json").is_file()


def test_the_same_evaluation_before_is_compared_with(made: Path, run: Any) -> None:
    values = read(run, "report", made, "--before", made, *UNREPLAYED)
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
    values = read(run, "report", made, "--before", seed, "--training", seed, *UNREPLAYED)
    change, training = values["change"], values["training"]
    assert (change["questions"], values["answers"]["format only"]) == (48, "no")
    assert change["before"]["value"] < 0.3 < change["accuracy"]["value"]
    assert (made / "before" / "table.json").is_file()
    assert training["study"] == study | {"run": "seed-11"}
    assert training["terms"] == "In the training each question offered 4 to 8 of the workers."
    again = read(run, "report", made, "--before", seed, *UNREPLAYED)
    assert again["change"] == change, "it is evaluated once"


def test_an_evaluation_of_other_questions_is_refused_though_their_ids_are_the_same(
    made: Path, tmp_path: Path, run: Any
) -> None:
    other = tmp_path / "other"
    assert run("report", recipe(tmp_path, seed=4), "--out", other, *UNREPLAYED).code == 0
    ran = run("report", made, "--before", other)
    assert (ran.code, ran.out, "other questions" in ran.err) == (2, "", True)


def test_an_evaluation_of_other_workers_is_refused_though_their_names_are_the_same(
    made: Path, tmp_path: Path, run: Any
) -> None:
    other = Path(shutil.copytree(made, tmp_path / "other"))
    environment = json.loads((other / "environment.json").read_text())
    environment["inputs"]["workers"][0]["identity"] = "somebody else"
    (other / "environment.json").write_text(json.dumps(environment))
    ran = run("report", made, "--before", other)
    assert (ran.code, ran.out, "other workers" in ran.err) == (2, "", True)


NOT_THERE = """
FOLDER                        → expected the folder of an evaluation
FOLDER/nothing                → does not exist
MADE --system condutor        → expected one of conductor
MADE --budget-dollars much    → expected an amount
MADE --training FOLDER        → curve
MADE --nonsense               → --nonsense
ROOT/recipes/gym.toml         → recipe of `openconductor train`
"""


@pytest.mark.parametrize("line", NOT_THERE.strip().splitlines())
def test_what_is_not_there_is_said(
    made: Path, tmp_path: Path, root: Path, run: Any, line: str
) -> None:
    words, why = line.split("→")
    for name, path in (("FOLDER", tmp_path), ("MADE", made), ("ROOT", root)):
        words = words.replace(name, str(path))
    ran = run("report", *words.split(), *UNREPLAYED)
    assert (ran.code, ran.out) == (2, "")
    assert why.strip() in ran.err


# ── what an undecided verdict lacks ───────────────────────────────────────────────────────────────
def evaluated(run: Any, folder: Path, *words: object) -> Path:
    systems = ("conductor", "workers")
    assert run("eval", *systems, "--seed", "5", "--out", folder, *words).code == 0
    return folder


def test_an_undecided_verdict_says_what_is_missing_and_one_command_asks_for_it(
    tmp_path: Path, run: Any
) -> None:
    folder = evaluated(run, tmp_path / "few", "--limit", "20")
    ran = run("report", folder)
    text = " ".join(ran.out.split())
    assert "undecided (n too small)" in text
    assert (
        "Missing for a verdict: about 30 questions in all (20 were asked) and its planner" in text
    )
    command = f"openconductor report {folder} --complete"
    assert re.search(r"To ask for it \(at most about [0-9,]+ calls and \$[0-9.]+\): ", text)
    assert f"): {command}" in text
    calls = Results.load(folder).records
    again = run(*command.split()[1:])
    assert (again.code, "orchestration gain" in again.out) == (0, True)
    assert "asking for what the verdict lacks: at most about" in again.err
    assert re.search(r"asked [0-9,]+ calls: \$0\.\d+", again.err)
    assert "Missing" not in again.out
    whole = Results.load(folder)
    assert (whole.missing, len(whole.of("conductor"))) == (0, 30)
    assert set(calls) <= set(whole.records), "no answer was asked again"
    assert run("eval", "--out", folder).code == 0, "the folder holds the larger evaluation"
    assert read(run, "report", folder)["lacks"] is None


def test_where_there_are_no_more_questions_the_rest_of_the_plans_is_replayed(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openconductor.evaluation.eval_config.EvalConfig.simulated", False)
    monkeypatch.setattr("openconductor.cli.report._Case._extend", lambda *_: None)
    folder = evaluated(run, tmp_path / "few", "best_fixed", "--limit", "20")
    some = read(run, "report", folder, "--counterfactual", "6")
    assert some["lacks"]["questions"] and not some["lacks"]["replays"]
    assert read(run, "report", folder, "--complete")["plays"]["questions"] == 20
    ran = run("report", folder, "--complete")
    assert (ran.code, "no more questions" in ran.err) == (2, True)


def test_a_system_that_the_verdict_lacks_is_evaluated_too(made: Path, tmp_path, run) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "made"))
    before = read(run, "report", folder)
    (vote,) = before["lacks"]["systems"]
    assert vote.startswith("consensus:") and vote in before["summary"]
    after = read(run, "report", folder, "--complete")
    assert vote in Results.load(folder).systems
    assert after["lacks"] is None or vote not in after["lacks"]["systems"]
    assert after["effort"]["name"] == vote


def test_a_gain_is_tested_by_asking_its_planner_again(tmp_path: Path, run: Any) -> None:
    folder = evaluated(run, tmp_path / "gain", "best_fixed", "--limit", "40")
    before = run("report", folder)
    text = " ".join(before.out.split())
    assert "planning was not repeated" in text
    assert "Not asked yet: its planner, asked again for 40 questions." in text
    assert "To ask for it (at most about 40 calls and $" in text
    tested = run("report", folder, "--complete")
    assert re.search(r"asked 40 calls: \$0", tested.err)
    assert "asked again for 40 questions" in " ".join(tested.out.split())
    later = read(run, "report", folder)
    assert (later["verdict"], later["lacks"]) == ("orchestration gain", None)
    assert later["plays"]["again"]["shape"]["problems"] == 40
    assert replay_calls(folder) == 40


def test_a_planner_that_is_another_one_by_now_is_not_asked_again(tmp_path: Path, run: Any) -> None:
    folder = evaluated(run, tmp_path / "gain", "best_fixed", "--limit", "40")
    file = folder / "environment.json"
    environment = json.loads(file.read_text())
    environment["inputs"]["planners"]["conductor"] = "tiny elsewhere"
    file.write_text(json.dumps(environment))
    ran = run("report", folder, "--complete")
    assert "planning is not repeated: the planner of conductor is another model now" in ran.err
    assert "orchestration gain" in ran.out


def test_what_is_missing_is_asked_within_a_budget(tmp_path: Path, run: Any) -> None:
    folder = evaluated(run, tmp_path / "few", "--limit", "20")
    ran = run("report", folder, "--complete", "--budget-dollars", "0.0001")
    assert (ran.code, ran.err.count("the evaluation's budget is spent")) == (1, 1)
    assert "undecided (n too small)" in " ".join(ran.out.split()), "the report is still made"


def test_a_run_is_only_extended_with_the_workers_and_questions_it_had(
    tmp_path: Path, run: Any
) -> None:
    folder = evaluated(run, tmp_path / "few", "--limit", "20")
    file = folder / "environment.json"
    environment = json.loads(file.read_text())
    identity = environment["inputs"]["workers"][0]["identity"]
    environment["inputs"]["workers"][0]["identity"] = "somebody else"
    file.write_text(json.dumps(environment))
    ran = run("report", folder, "--complete")
    assert (ran.code, "the run cannot be extended" in ran.err) == (2, True)
    environment["inputs"]["workers"][0]["identity"] = identity
    file.write_text(json.dumps(environment))
    asked = folder / "questions.jsonl"
    asked.write_text(asked.read_text().replace('"question":"', '"question":"Once: '))
    ran = run("report", folder, "--complete")
    assert (ran.code, "its questions have changed" in ran.err) == (2, True)


# ── replays over workers ──────────────────────────────────────────────────────────────────────────
@pytest.fixture
def paid(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run whose replays go to the workers, as those of any other pool do."""
    monkeypatch.setattr("openconductor.evaluation.eval_config.EvalConfig.simulated", False)
    return Path(shutil.copytree(made, tmp_path / "paid"))


def replay_calls(folder: Path) -> int:
    with read_store(folder / "counterfactual.sqlite") as store:
        return store.totals().spent.calls


async def played_nothing(*_: object, **__: object) -> Plays:
    ways = ("own", "strangers", "silent", "other_shape", "other_words")
    no_scores: dict[str, Any] = {way: {} for way in ways}
    return Plays(played=0, constants=(), transplants=(), **no_scores)


async def test_replays_pay_for_new_calls_once_and_for_those_of_the_evaluation_never(
    paid, monkeypatch
) -> None:
    results = Results.load(paid)
    with monkeypatch.context() as patched:  # nothing is edited
        patched.setattr(counterfactual, "_edits", lambda *_: ())
        patched.setattr(replays_module, "play_plans", played_nothing)
        replays: Any = (await replay_plans(results, paid)).edits
    records = results.of("conductor")
    # Only a refusal is no completion that could be found in the journal.
    refused = sum(record.status == "refused" for record in records)
    assert replay_calls(paid) == refused
    right = [bool(record.correct) for record in records if record.workflows]
    assert replays.unedited.value == pytest.approx(fmean(right)), "the same answers"
    some = await replay_plans(results, paid, limit=6)
    calls = replay_calls(paid)
    assert await replay_plans(results, paid, limit=6) == some
    again = replay_calls(paid) - calls
    assert again < (calls - refused) / 4, "refusals again, and nothing else"


def test_replays_stop_at_their_budget_and_go_on_from_there(paid: Path, run: Any) -> None:
    words = ("report", paid, "--counterfactual", "6")
    ran = run(*words, "--budget-dollars", "0.0005")
    assert (ran.code, ran.err.count("error:")) == (1, 1)
    assert "What whole plans are worth" not in ran.out, "the report is made without replays"
    begun = replay_calls(paid)
    assert begun > 0
    assert read(run, *words)["counterfactuals"]["replays"] > 6
    assert replay_calls(paid) > begun


def test_replays_that_were_paid_for_stay_in_later_reports(paid: Path, run: Any) -> None:
    before = read(run, "report", paid)
    assert before["plays"] is None, "nothing is replayed that costs, unless it is asked for"
    made = read(run, "report", paid, "--counterfactual", "6")
    assert made["plays"]["questions"] <= 6
    calls = replay_calls(paid)
    later = read(run, "report", paid)
    assert (later["plays"], later["counterfactuals"]) == (made["plays"], made["counterfactuals"])
    assert later["verdict"] == made["verdict"] and replay_calls(paid) == calls
    assert read(run, "report", paid, "--counterfactual", "0")["plays"] is None
    elsewhere = read(run, "report", paid, "--system", "random")
    assert elsewhere["plays"] is None, "they are of another system"


def test_replays_of_other_answers_are_not_taken(paid: Path, run: Any) -> None:
    read(run, "report", paid, "--counterfactual", "6")
    results = Results.load(paid)
    assert read_replays(results, paid, "conductor") is not None
    records = [replace(record, correct=not record.correct) for record in results.records]
    assert read_replays(replace(results, records=tuple(records)), paid, "conductor") is None
    (paid / "replays.json").write_text("{", "utf-8")
    ran = run("report", paid)
    assert (ran.code, "no replays: " in ran.err, "--counterfactual N" in ran.err) == (0, True, True)


def test_the_page_shows_answers_of_the_run_with_the_steps_that_led_to_them(made: Path) -> None:
    page = (made / "report" / "report.html").read_text("utf-8")
    shown = page.partition('<section id="answers-to-look-at"')[2].partition("</section>")[0]
    names = ("Right", "Wrong", "Rescued by orchestrating")
    assert all(f"<h3>{name}</h3>" in shown for name in names)
    assert "<dt>step 0</dt>" in shown and "<dt>reference</dt>" in shown
    assert "wrong: " in shown and "expected" in shown


# ── pool headroom ─────────────────────────────────────────────────────────────────────────────────
HEADROOM = ("pool", "headroom")


def test_headroom_asks_every_worker_alone_and_goes_on_where_it_was_cut_off(
    tmp_path: Path, run: Any
) -> None:
    words = (*HEADROOM, "--limit", "20", "--repeats", "2", "--out", tmp_path / "h")
    partial = run(*words, "--budget-calls", "100", "--json")
    assert (partial.code, "budget" in partial.err) == (1, True), "the budget was spent first"
    assert 0 < partial.json()["missing"] < 320
    values = read(run, *words, "--budget-calls", "320")
    assert (values["missing"], values["repeats"]) == (0, 2)
    matrix = values["matrix"]
    assert (len(matrix["workers"]), len(matrix["right"])) == (8, 20)
    assert values["oracle_corrected"]["value"] <= values["oracle_naive"]["value"]


def test_headroom_says_how_many_questions_show_a_gain(tmp_path: Path, run: Any) -> None:
    words = (*HEADROOM, "--limit", "12", "--repeats", "1", "--out", tmp_path / "h")
    three, ten = read(run, *words, "--gain", "3", "--gain", "10")["needed"]
    assert (three["gain"], ten["gain"]) == (0.03, 0.1)
    assert three["questions"] > ten["questions"]
    ran = run(*words)
    assert ran.code == 0
    assert ran.out.startswith("choosing the right worker for each question could gain")
    assert "ask each question at least twice" in " ".join(ran.out.split())
    ran = run("report", tmp_path / "h")
    assert (ran.code, ran.out, "no system here writes plans" in ran.err) == (2, "", True)


def test_headroom_says_what_its_estimates_leave_out(tmp_path: Path, run: Any) -> None:
    ran = run(*HEADROOM, "--limit", "12", "--repeats", "2", "--out", tmp_path / "h")
    said = " ".join(ran.out.split())
    assert said.startswith("choosing the right worker for each question could gain at least +")
    assert "(here 1 of 2), which may miss the best one. More repeats come nearer to the" in said
    assert "A loss below zero is chance" in said


def test_headroom_takes_several_tasks_and_shows_what_each_worker_costs(tmp_path, run) -> None:
    words = (*HEADROOM, "--task", "gym", "--task", "more=gym", "--limit", "5", "--repeats", "1")
    values = read(run, *words, "--out", tmp_path / "h")
    assert values["questions"] == 10
    jack = values["costs"]["worker:jack"]
    assert jack["dollars"] > 0 and jack["seconds"] > 0
    ran = run(*words, "--out", tmp_path / "h")
    head = ran.out.partition("What the pool could give")[2].partition("───")[0]
    assert "dollars a 1,000" in " ".join(head.split()) and "seconds" in head


def test_headroom_without_a_cent_says_that_the_budget_was_the_cause(tmp_path, run) -> None:
    words = (*HEADROOM, "--budget-dollars", "0", "--limit", "3", "--concurrency", "1")
    ran = run(*words, "--out", tmp_path / "h")
    assert (ran.code, ran.out) == (1, "")
    assert "the evaluation's budget is spent, 0 of " in ran.err
    assert "reserves $" in ran.err and "of $0 only $0 are left" in ran.err
    assert "raise --budget-dollars" in ran.err
    assert "could be decided" not in ran.err


SENSELESS = """
--gain 0            → --gain
--task gim          → gym
none.toml           → none.toml
--budget-dollars -1 → --budget-dollars
--seed -1           → --seed
--task math500      → expected a pool file
"""


@pytest.mark.parametrize("line", SENSELESS.strip().splitlines())
def test_headroom_refuses_what_makes_no_sense(tmp_path: Path, run: Any, line: str) -> None:
    words, why = line.split("→")
    ran = run(*HEADROOM, *words.split(), "--limit", "5", "--out", tmp_path / "h")
    assert (ran.code, ran.out) == (2, "")
    assert why.strip() in ran.err
