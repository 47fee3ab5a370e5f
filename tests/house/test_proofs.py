"""The mechanised proof leaves nothing out, and is checked again where Rocq is installed."""

import re
import shutil
import subprocess

import pytest

from tests.paths import ROOT

PROOF = ROOT / "docs" / "proofs" / "rejection.v"
OF_THE_REALS = {
    "ClassicalDedekindReals.sig_forall_dec",
    "ClassicalDedekindReals.sig_not_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
}
"""What Rocq's real numbers rest on."""


def test_every_statement_is_proved():
    text = re.sub(r"\(\*.*?\*\)", "", PROOF.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not re.search(r"\b(Admitted|admit|Axiom|Parameter|Hypothesis|Conjecture)\b", text)
    stated = re.findall(r"^(?:Lemma|Theorem) (\w+)", text, flags=re.MULTILINE)
    assert stated[-2:] == ["lossless", "acceptance"]
    assert len(re.findall(r"^Proof\.", text, flags=re.MULTILINE)) == len(stated)
    assert text.count("Qed.") == len(stated)


@pytest.mark.skipif(shutil.which("coqc") is None, reason="Rocq is not installed")
def test_rocq_accepts_the_proof(tmp_path):
    shutil.copy(PROOF, tmp_path)
    run = subprocess.run(
        ["coqc", PROOF.name], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assumed = set(re.findall(r"^(\w+\.\w+)", run.stdout, flags=re.MULTILINE))
    assert assumed <= OF_THE_REALS
