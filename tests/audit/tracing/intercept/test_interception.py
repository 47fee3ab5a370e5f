"""Interception as a whole: states between executions, and audits of code that draws by itself."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch

import otm
from otm import audit
from otm.audit.tracing import branching as tracing
from otm.audit.tracing.intercept.draws import ReplayedDraws
from otm.audit.tracing.intercept.interception import intercepted


def test_every_execution_begins_at_the_same_state():
    found = []
    with intercepted() as interception:
        for _ in range(2):
            with interception.into(ReplayedDraws([[0.5], [0.25]])):
                states = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
                found.append((states, np.random.rand(), torch.rand(1).item()))
    assert found[0] == found[1]
    assert found[0][1:] == (0.5, 0.25)


def test_a_seed_alone_is_set_back_before_the_next_execution():
    """Half of the executions seed every library and draw nothing from it; the others see where the
    generators are.
    """
    begun = torch.get_rng_state(), random.getstate(), np.random.get_state()[1]

    def code(uniforms):
        if uniforms[0] < 0.5:
            torch.manual_seed(1)
            random.seed(1)
            np.seterr(divide="raise")
            return "seeds"
        found = torch.get_rng_state(), random.getstate(), np.random.get_state()[1]
        same = [bool((a == b).all()) for a, b in zip(found[::2], begun[::2], strict=True)]
        return (*same, found[1] == begun[1], np.geterr()["divide"])

    law = tracing.trace(code, 1)
    assert law.mass == {"seeds": 0.5, (True, True, True, "ignore"): 0.5}


def test_what_stands_in_for_a_function_in_one_audit_does_not_in_the_next(monkeypatch):
    def verify(p, q, drafts, uniforms):
        token = drafts[0]
        if np.random.rand() * p[token] < q[token]:
            return token
        rest = np.maximum(q - p, 0.0)
        return np.random.choice(len(q), p=rest / rest.sum())

    problem = otm.Problem(draft=[0.5, 0.3, 0.2], target=[0.2, 0.45, 0.35], law=otm.IID(1))
    for constant, verdict in ((False, "lossless"), (True, "not lossless"), (False, "lossless")):
        with monkeypatch.context() as patch:
            if constant:
                patch.setattr(np.random, "rand", lambda: 0.5)
            assert audit.exact(verify, problem).verdict == verdict


def test_draws_are_intercepted_once_for_all_drafts_of_an_audit(
    monkeypatch,
):
    begun = []
    before = tracing.intercepted
    monkeypatch.setattr(tracing, "intercepted", lambda: begun.append(1) or before())
    found = audit.exact(recursive, problem(2))  # which looks at whole rows
    assert (found.method, found.cells > 9) == ("branched", True)
    assert begun == [1]


def test_the_compiler_of_torch_is_not_loaded_for_it():
    """It takes seconds."""
    code = (
        "import sys, torch; from otm.audit.tracing.branching import trace; "
        "print(trace(lambda u: bool(torch.rand(()) < 0.5)).mass, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("}")[1].strip() == "False"


def test_a_battery_seeds_what_draws_by_itself():
    """The same seed gives the same samples, whatever was drawn before."""

    def found():
        torch.rand(3)
        return audit.battery(
            slanted,
            laws=[otm.IID(1)],
            seed=3,
            errors=audit.Errors(detect=0.3, false_alarm=0.1, missed=0.4),
        ).audits

    first, second = ({label: one.row() for label, one in found().items()} for _ in range(2))
    assert first == second


def slanted(p, q, drafts, uniforms):
    """Sample the target from a sum of two uniforms, which has no branches."""
    u = np.float64((torch.rand(()) + torch.rand(())) % 1.0)
    return int(np.searchsorted(np.cumsum(q)[:-1], u, side="right"))


def single(p, q, drafts, uniforms):
    """Speculative sampling in torch, with torch's randomness."""
    draft, target = torch.as_tensor(p), torch.as_tensor(q)
    x = int(drafts[0])
    if torch.rand((), dtype=torch.float64) * draft[x] < target[x]:
        return x, True
    residual = (target - draft).clamp(min=0)
    return int(torch.multinomial(residual / residual.sum(), 1)), False


def recursive(p, q, drafts, uniforms):
    """Recursive rejection of several drafts, residual by an exponential race."""
    draft, rest = torch.as_tensor(p), torch.as_tensor(q)
    for x in drafts.tolist():
        if torch.rand(1, dtype=torch.float64).item() * draft[x] < rest[x]:
            return x, True
        rest = (rest - draft).clamp(min=0)
        rest = rest / rest.sum()
    return int((rest / torch.empty_like(rest).exponential_()).argmax()), False


def lossy(p, q, drafts, uniforms):
    """After a rejection the target is sampled."""
    x = int(drafts[0])
    accept = bool(torch.rand((), dtype=torch.float64) < torch.as_tensor(q / p)[x])
    return x if accept else int(torch.multinomial(torch.as_tensor(q), 1))


def problem(k):
    return otm.Problem(draft=[0.5, 0.3, 0.15, 0.05], target=[0.2, 0.35, 0.2, 0.25], law=otm.IID(k))


@pytest.mark.parametrize(
    ("candidate", "k", "variation"), [(single, 1, 0.0), (recursive, 2, 0.0), (lossy, 1, 1 / 8)]
)
def test_candidates_with_torchs_randomness_are_followed(candidate, k, variation):
    found = audit.exact(candidate, problem(k))
    assert (found.method, found.error) == ("branched", 0.0)
    assert found.verdict == ("not lossless" if variation else "lossless")
    assert found.total_variation == pytest.approx(variation, abs=1e-14)
    assert found.cells < 250


def test_a_battery_branches_too_and_says_so():
    found = audit.battery(lossy, only="exact", laws=[otm.IID(1)], seconds=8.0, shrink_for=0)
    assert (found.verdict, found.reason) == ("not lossless", "")
    assert [means for means, _ in found.coverage.by] == ["branching on draws"]
    assert "by branching on draws" in str(found).splitlines()[2]


def unfollowed(p, q, drafts, uniforms):
    torch.poisson(torch.ones(1))
    return single(p, q, drafts, uniforms)[0]


def test_a_battery_of_what_escapes_is_sampled_and_says_why():
    found = audit.battery(unfollowed, laws=[otm.IID(1)], errors=audit.Errors(detect=0.2))
    assert found.verdict == "no difference found"
    assert "Not traced, since torch.poisson has no branches." in str(found).splitlines()
    assert [means for means, _ in found.coverage.by] == ["samples"]


def test_a_probed_one_says_why():
    found = audit.exact(lambda p, q, d, u: int(np.float64(u[0]) < q[1]), problem(1))
    assert found.method == "probed"
    assert "Not traced, since a random number was converted to a plain float (by" in str(found)


def test_a_race_in_the_steps_of_a_verifier_is_exact():
    pair = otm.Problem(draft=[0.6, 0.4], target=[0.25, 0.75], law=otm.IID(2))
    found = audit.library_sampler(otm.ListRace(), pair)
    assert (found.verdict, found.error) == ("lossless", 0.0)
