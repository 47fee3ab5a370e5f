"""Standard output is the JSON that was asked for, and nothing beside it, in a process of its own.

Libraries write to the standard output past Python (highspy 1.16.0 prints a banner there), so that
each command runs as a user runs it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
COUNTERS = """vllm:spec_decode_num_drafts_total 10
vllm:spec_decode_num_draft_tokens_total 20
vllm:spec_decode_num_accepted_tokens_total 14
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 8
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 6
"""


def output_of(*words, given=None):
    done = subprocess.run(
        [sys.executable, *words], input=given, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (
            ["audit", "otm:TransportPlan", "--draft-probs", "3/4,1/4", "--target-probs", "1/2,1/2"],
            "",
        ),
        (["plan", "-", "--draft-ms", "2", "--target-ms", "20"], COUNTERS),
    ],
)
def test_json_on_standard_output_is_json(words, given):
    found = json.loads(output_of("-m", "otm", *words, "--json", "-", given=given))
    assert isinstance(found, dict)


def test_the_first_lines_of_readme_print_what_readme_says():
    """The first block of Python in README prints the block below it, and nothing else."""
    first = README.read_text(encoding="utf-8").split("```python\n", 1)[1]
    block, _, rest = first.partition("```")
    assert output_of("-c", block) == rest.split("```\n", 1)[1].split("```", 1)[0]


def test_versions_for_a_report_of_a_fault():
    names = [line.split()[0] for line in output_of("-m", "otm", "--versions").splitlines()]
    assert names[:5] == ["otm", "python", "system", "numpy", "scipy"]
