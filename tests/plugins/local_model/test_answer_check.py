"""Numbers, names, paths and claims of absence of an answer after a tool call."""

from __future__ import annotations

import pytest

from local_model import CallResult, find_unfounded, find_unfounded_claims, find_unfounded_deeds, plain_result

SOURCES = (
    "What does trip.txt say?",
    '{"content": "1|On Friday Ann sails 1204.567 miles to Bregenz.\\n2|Bring /etc/hosts.", "items": ["a", "b", "c"]}',
)


@pytest.mark.parametrize(
    "text",
    [
        "Ann sails to Bregenz on Friday.",
        "It is 1,204.57 miles, about 1205.",
        "The file trip.txt has 3 items and mentions /etc/hosts.",
        "1. Ann sails.\n2. Bring hosts.",
        "You could use Python or Linux for that.",
    ],
)
def test_what_a_source_has_is_founded_also_rounded_or_counted(text: str) -> None:
    assert find_unfounded(text, SOURCES) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is 1210 miles.", ["1210"]),
        ("She meets Mr Achterberg there.", ["Achterberg"]),
        ("It is in /home/user/trip.doc.", ["/home/user/trip.doc"]),
        ("See notes.md.", ["notes.md"]),
        ("There are 17 of them.", ["17"]),
    ],
)
def test_what_no_source_has_is_named(text: str, found: list[str]) -> None:
    assert find_unfounded(text, SOURCES) == found


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ('{"expression": "2**16", "result": 65536}', "The result of calculate: 65536"),
        ('{"output": "a\\nb\\n", "exit_code": 0}', "The result of calculate: a\nb"),
        ("plain words", "The result of calculate: plain words"),
        ('{"odd": [1]}', 'The result of calculate: {"odd": [1]}'),
    ],
)
def test_the_plain_result_is_what_the_tool_found(result: str, text: str) -> None:
    assert plain_result("calculate", result) == text


CALCULATE = CallResult(
    '{"expression": "strawberry.count(\'r\')", "error": "Invalid: name \'strawberry\' is not defined"}',
    '{"expression": "strawberry.count(\'r\')"}',
    looks_at_files=False,
)
READ = CallResult(
    '{"error": "/srv/minutes.md cannot be read: No such file or directory"}', '{"path": "minutes.md"}', True
)
SEARCH = CallResult('{"error": "`pattern` is empty"}', '{"pattern": "", "path": "notes"}', True)
LISTED = CallResult('{"kind": "directory", "content": "a.txt\\nb.txt", "total_entries": 2}', '{"path": "notes"}', True)
NO_MATCH = CallResult('{"matches": [], "note": "no match"}', '{"pattern": "ox", "path": "."}', True)
SILENT = CallResult('{"output": "", "exit_code": 0}', '{"command": "find . -name ox"}', True)
SENSOR = CallResult('{"error": "no reading from sensor kitchen: the bus is offline"}', '{"sensor": "kitchen"}', False)
CONVERT = CallResult('{"error": "Cannot convert furlongs \\u2192 KB"}', '{"value": 3, "from_unit": "furlongs"}', False)


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("There is no file named strawberry.", [CALCULATE]),
        ("I could not count the letters: there is no file named strawberry.", [CALCULATE]),
        ("I could not find the file strawberry.", [CALCULATE]),
        ("I could not count them: strawberry does not exist.", [CALCULATE]),
        ("I could not count them: strawberry doesn\u2019t exist.", [CALCULATE]),
        ("I could not count them, because strawberry was not found.", [CALCULATE]),
        ("I could not count them: it has no letters r.", [CALCULATE]),
        ("I could not count them: the word strawberry does not contain the letter r.", [CALCULATE]),
        ("I could not count them: there are no matches.", [CALCULATE]),
        ("I could not count them: there are 0 of them.", [CALCULATE]),
        ("I could not count them. The directory is empty.", [CALCULATE]),
        ("I could not count them: no such file.", [CALCULATE]),
        ("I could not do it: the folder contains no files.", [CONVERT]),
        ("I could not read it: the sensor kitchen was not found in a file.", [SENSOR]),
        ("I could not search: the directory notes is empty.", [SEARCH]),
        ("I could not search: notes contains no files.", [SEARCH]),
        ("I could not read minutes.md: it is empty.", [READ]),
        ("The directory notes is empty.", [SEARCH, LISTED]),
        ("There is no file called strawberry.", [CALCULATE, CONVERT]),
    ],
)
def test_a_claim_of_absence_after_a_failed_call_needs_a_result_that_has_it(
    text: str, results: list[CallResult]
) -> None:
    assert find_unfounded_claims(text, results)


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("I could not count the letters: the name strawberry is not defined.", [CALCULATE]),
        ("I could not calculate this, calculate failed: Invalid: name 'strawberry' is not defined.", [CALCULATE]),
        ("I could not find the number of letters.", [CALCULATE]),
        ("I could not do this, since there is no permission.", [CALCULATE]),
        ("I could not read missing.md: calculate does not know it.", [CALCULATE]),
        ("I could not read minutes.md: no such file.", [READ]),
        ("I could not read minutes.md: it does not exist.", [READ]),
        ("I could not find the file minutes.md.", [READ]),
        ("I could not summarise minutes.md. There is no file minutes.md in this directory.", [READ]),
        ("I could not search: the pattern is empty.", [SEARCH]),
        ("I could not read the sensor: there is no reading from the sensor kitchen.", [SENSOR]),
        ("I could not convert furlongs to KB: the units are not supported.", [CONVERT]),
        ("There is no file c.txt.", [SEARCH, LISTED]),
        ("There are no matches, so no file has ox.", [SEARCH, NO_MATCH]),
        ("There is no file with that name.", [CALCULATE, SILENT]),
        ("The directory is empty.", [CALCULATE, SILENT]),
        ("There is no file called strawberry.", [LISTED]),
        ("There is no file called strawberry.", []),
    ],
)
def test_a_claim_of_absence_that_a_result_has_is_founded(text: str, results: list[CallResult]) -> None:
    assert find_unfounded_claims(text, results) == []


WRITTEN = CallResult(
    '{"path": "mail.txt", "bytes_written": 13}',
    '{"path": "mail.txt", "content": "lunch at noon"}',
    True,
    "write_file Writes a file.",
)
MAIL = CallResult('{"ok": true}', '{"to": "bob@example.org"}', False, "send_mail Sends a mail.")
BROKEN_MAIL = CallResult('{"error": "no network"}', '{"to": "bob@example.org"}', False, "send_mail Sends a mail.")
LETTER = CallResult('{"content": "Ann was sent to Vienna."}', '{"path": "letter.txt"}', True, "read_file Reads a file.")


@pytest.mark.parametrize(
    ("text", "results", "unfounded"),
    [
        ("Mail sent to bob@example.org.", [WRITTEN], ["sent"]),
        ("I have booked the table.", [WRITTEN], ["booked"]),
        ("The mail was sent.", [BROKEN_MAIL], ["sent"]),
        ("The mail was sent.", [BROKEN_MAIL, MAIL], []),
        ("The mail could not be sent.", [BROKEN_MAIL], []),
        ("It was not sent.", [WRITTEN], []),
        ("Ann was sent to Vienna.", [LETTER], []),
        ("The text was saved in mail.txt.", [WRITTEN], []),
    ],
)
def test_what_was_done_for_good_needs_a_call_that_does_so(
    text: str, results: list[CallResult], unfounded: list[str]
) -> None:
    assert find_unfounded_deeds(text, results) == unfounded
