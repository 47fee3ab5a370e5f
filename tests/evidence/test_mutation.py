"""The runner of mutants: what it changes, and that the change is what then runs."""

import importlib.util
from pathlib import Path

from evidence.mutation import PAGE, apply, equivalent, mutants_of
from tests.paths import ROOT

SOURCE = '''
def shifted(x: float = 1.5) -> float:
    """Return x + 2 unless x is negative."""
    if x < 0:
        raise ValueError(f"{x + 7} is below 0")
    return [y + 2 for y in (x,)][0]
'''


def test_each_mutant_changes_what_the_function_answers(tmp_path):
    file = tmp_path / "toy.py"
    file.write_text(SOURCE)
    answers = []
    for path, node, _, change in mutants_of(file):
        changed = change.rpartition(": ")[2]
        spec = importlib.util.spec_from_file_location("toy", file)
        toy = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(toy)
        apply(path, node, [toy.shifted])
        try:
            answers.append((changed, toy.shifted(1.0), toy.shifted(0)))
        except (ValueError, IndexError) as error:
            answers.append((changed, type(error)))
    assert answers == [
        ("x < 0 -> not x < 0", ValueError),
        ("x < 0 -> x <= 0", ValueError),
        ("0 -> 1", ValueError),
        ("y + 2 -> y - 2", -1.0, -2),
        ("2 -> 3", 4.0, 3),
        ("0 -> 1", IndexError),
    ]


def test_mutants_that_change_no_answer_are_of_files_that_there_are(monkeypatch):
    """A file that moves takes its list with it, or its mutants count as alive."""
    monkeypatch.chdir(ROOT)
    listed = equivalent()
    assert PAGE.is_file() and len(listed) > 150
    assert not [file for file, _ in listed if not Path(file).is_file()]
