"""Heights at fixed levels: values, slopes, and gradients that are the two sets of tokens."""

import pytest
import torch

from otm.overlap import overlap_at
from otm.overlap.gradient import attach_curve_gradient, height_and_slope


def rows(dtype):
    draft = torch.tensor([[0.5, 0.25, 0.125, 0.125], [0.0, 0.5, 0.5, 0.0]], dtype=dtype)
    target = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]], dtype=dtype)
    return draft.requires_grad_(), target.requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_heights_and_slopes(dtype):
    draft, target = rows(dtype)
    for level in (0.0, 0.5, 1.0, 2.0, 7.0):
        levels = torch.full((2,), level, dtype=torch.float64)
        height, slope = height_and_slope(draft, target, levels)
        assert height.dtype == torch.float64
        assert torch.equal(height.detach(), overlap_at(draft.detach(), target.detach(), levels))
        # dyadic masses: the right derivative of a piecewise linear function, exactly
        below = overlap_at(draft.detach(), target.detach(), levels - 2.0**-10)
        assert torch.equal(slope, (height.detach() - below) * 2.0**10) or level == 0.0


def test_gradients_are_indicators_times_the_level():
    """At level 2: tokens with q < 2p give q, the others 2p; a tie counts with 2p."""
    draft, target = rows(torch.float64)
    slopes = torch.autograd.grad(
        height_and_slope(draft, target, torch.tensor([2.0, 2.0]))[0].sum(), (draft, target)
    )
    assert slopes[0].tolist() == [[0, 0, 2, 2], [2, 0, 0, 2]]
    assert slopes[1].tolist() == [[1, 1, 0, 0], [0, 1, 1, 0]]


def test_values_stay_and_gradients_are_weighted():
    draft, target = rows(torch.float64)
    values = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64)
    found = attach_curve_gradient(
        values, draft, target, levels=torch.tensor([[2.0, 2.0], [0.5, 0.5]]), weights=3.0
    )
    assert torch.equal(found.detach(), values)
    (slope,) = torch.autograd.grad(found[0].sum(), target)
    assert slope.tolist() == [[3, 3, 0, 0], [0, 3, 3, 0]]
