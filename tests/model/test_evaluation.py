"""How `make eval` judges and keeps answers; no model is asked."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from bfcl import CATEGORIES, SAMPLE, find_missing_step, find_wrong_call, read_tasks
from evaluation_record import BEGIN, END, AskedItem, EvaluationRecord
from everyday import REQUESTS
from fresh_home import TurnRecord
from guide_prompts import RUNS, draw_prompts

TOOLS = [{"function": {"name": "area", "parameters": {"required": ["base", "height"]}}}]
TRUTH = [{"area": {"base": [10], "height": [5.5], "unit": ["square meters", ""]}}]


@pytest.mark.parametrize(
    ("calls", "is_right"),
    [
        ([("area", {"base": 10, "height": 5.5})], True),
        ([("area", {"base": 10.0, "height": 5.5, "unit": "Square-Meters"})], True),
        ([("area", {"base": 10, "height": 5.5, "unit": "feet"})], False),
        ([("area", {"base": 10, "height": 5.5, "colour": "red"})], False),
        ([("area", {"base": 10})], False),
        ([("area", {"base": True, "height": 5.5})], False),
        ([("volume", {"base": 10, "height": 5.5})], False),
        ([("area", {"base": 10, "height": 5.5})] * 2, False),
        ([], False),
    ],
)
def test_a_call_is_right_with_the_name_and_the_allowed_values_of_the_reference(
    calls: list[tuple[str, dict[str, object]]], is_right: bool
) -> None:
    assert (find_wrong_call(calls, TRUTH, TOOLS) == "") is is_right


def test_parallel_calls_may_come_in_any_order() -> None:
    truth = [{"area": {"base": [n], "height": [1]}} for n in (1, 2)]
    calls = [("area", {"base": n, "height": 1}) for n in (2, 1)]
    assert find_wrong_call(calls, truth, TOOLS) == ""
    assert find_wrong_call([calls[0]] * 2, truth, TOOLS) != ""


def test_the_steps_of_a_turn_have_to_come_in_their_order() -> None:
    truth = [("cd", {"folder": "a"}), ("ls", {})]
    assert find_missing_step([("pwd", {}), *truth], truth) == ""
    assert "ls" in find_missing_step([truth[1], truth[0]], truth)


def bfcl_wheel(path: Path) -> Path:
    function = {
        "name": "cd",
        "description": "Belongs to it. Tool description: Change the folder.",
        "parameters": {"type": "dict", "properties": {"folder": {"type": "string"}}, "required": ["folder"]},
    }
    question = [[{"role": "user", "content": "Go to a"}]]
    with zipfile.ZipFile(path, "w") as archive:
        for category, name in CATEGORIES.items():
            count = SAMPLE.get(category, 100)
            many = category == "multi-turn"
            tasks = [
                {"id": f"{name}_{n}", "question": question}
                | ({"involved_classes": ["GorillaFileSystem"]} if many else {"function": [function]})
                for n in range(count + 5)
            ]
            truth = [["cd('a')"]] if many else [{"cd": {"folder": ["a"]}}]
            answers = [{"id": task["id"], "ground_truth": truth} for task in tasks]
            root = "bfcl_eval/data"
            archive.writestr(f"{root}/BFCL_v4_{name}.json", "\n".join(map(json.dumps, tasks)))
            archive.writestr(f"{root}/possible_answer/BFCL_v4_{name}.json", "\n".join(map(json.dumps, answers)))
        archive.writestr(f"{root}/multi_turn_func_doc/gorilla_file_system.json", json.dumps(function))
    return path


def test_the_same_tasks_are_drawn_with_the_same_seed_and_the_categories_alternate(tmp_path: Path) -> None:
    wheel = bfcl_wheel(tmp_path / "bfcl_eval-1-py3-none-any.whl")
    tasks = read_tasks(wheel)
    assert [t.id for t in tasks] == [t.id for t in read_tasks(wheel)] != [t.id for t in read_tasks(wheel, seed=1)]
    assert Counter(t.category for t in tasks) == {name: SAMPLE.get(name, 100) for name in CATEGORIES}
    assert [t.category for t in tasks[:5]] == list(CATEGORIES)
    several = tasks[4]
    assert several.truth == ([("cd", {"folder": "a"})],)
    assert several.tools[0]["function"]["description"] == "Change the folder."
    assert several.tools[0]["function"]["parameters"]["type"] == "object"


def item(name: str, verdict: str = "right", suite: str = "everyday") -> AskedItem:
    return AskedItem(suite, "files", name, verdict, "", 1.5, "text", [["terminal", "ok", "out"]])


def test_a_second_run_continues_and_answers_of_another_adapter_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "eval" / "answers.jsonl"
    EvaluationRecord(path).add(item("read"))
    assert EvaluationRecord(path).items == {("everyday", "files", "read"): item("read")}
    changed = path.read_text().replace(EvaluationRecord(path).adapter, "another")
    path.write_text(changed)
    assert EvaluationRecord(path).items == {}
    assert len(EvaluationRecord(path, keep_older=True).items) == 1


def test_the_table_is_written_between_its_marks_and_what_falls_short_is_named(tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    EvaluationRecord(answers).add(item("older", suite="bfcl"))
    answers.write_text(answers.read_text().replace(EvaluationRecord(answers).adapter, "0123456789ab"))
    record = EvaluationRecord(answers, keep_older=True)
    for n in range(13):
        record.add(item(f"bad-{n}", "wrong"))
    record.add(item("good"))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    record.write_page(page)
    text = page.read_text()
    assert "| everyday | files | 14 | 1 | 1.5 |" in text
    assert f"State of the adapter: `0123456789ab` (bfcl); `{record.adapter}` (everyday)." in text
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert list(record.find_shortfalls()) == ["everyday: 1 of 14 right; 48 of 60 have to be"]


def test_sixty_requests_of_seven_groups_and_forty_runs_of_the_guide_are_asked() -> None:
    assert len({(r.group, r.name) for r in REQUESTS}) == 60
    assert len({r.group for r in REQUESTS}) == 7
    drawn = draw_prompts()
    assert len({p.name for p in drawn}) == RUNS
    assert drawn[1].question == "Convert 100 fahrenheit to celsius" and round(drawn[1].value or 0, 2) == 37.78


def test_an_answer_is_wrong_without_the_call_the_files_or_the_number_that_are_needed(tmp_path: Path) -> None:
    by_name = {request.name: request for request in REQUESTS}
    right = TurnRecord("?", (("calculate", "ok", "65536"),), "It is 65,536.", "")
    assert by_name["power"].find_fault(right, tmp_path) == ""
    assert "no successful call" in by_name["power"].find_fault(TurnRecord("?", (), "65536", ""), tmp_path)
    assert "65536" in by_name["power"].find_fault(TurnRecord("?", right.calls, "It is 64000.", ""), tmp_path)
    wrote = TurnRecord("?", (("write_file", "ok", "{}"),), "Done.", "")
    assert by_name["write"].find_fault(wrote, tmp_path) == "the files are not as requested"
    (tmp_path / "hello.txt").write_text("Good morning\n")
    assert by_name["write"].find_fault(wrote, tmp_path) == ""
    invented = TurnRecord("?", (("read_file", "ok", "1|Feed the walrus."),), "Feed 12 walruses.", "")
    assert "12" in by_name["read"].find_fault(invented, tmp_path)
