"""
Several drafts of a diffusion step
==================================

A step of a diffusion model draws from a Gaussian. A cheaper model's step is a Gaussian with another
mean and the same variance, so that its draws are drafts, and the overlap curve of the two depends
on one number, the distance δ of the means in standard deviations. What k drafts can do follows as
it does on tokens: the best is 1 + min Φ(x − δ) − Φ(x)^k.

Verification of one draft a step is published (De Bortoli et al. 2025), and so are several steps
verified as a block (Soen et al. 2026, of which we know the abstract). For several drafts a step,
and for how far a block reaches, we know of no other work.
"""

import matplotlib.pyplot as plt
import numpy as np

import otm
from otm._display import drawing
from otm.continuous import (
    GaussianBlock,
    GaussianCurve,
    GaussianKSeq,
    GaussianOptimal,
    GaussianRejection,
    acceptance,
    optimal_acceptance,
)

STEPS, CHAINS, LENGTH = 16, 400, 3
rng = np.random.default_rng(3)

# %%
# Eight blobs, and a model that predicts the noise on them, fitted by least squares for each step:
# the target with 200 radial features, the draft with none, a Gaussian model of the data.


def blobs(count):
    angle = 2 * np.pi * rng.integers(8, size=count) / 8
    centre = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return 1.4 * centre + 0.1 * rng.standard_normal((count, 2))


kept = (
    np.cos(0.5 * np.pi * np.linspace(0.02, 0.98, STEPS + 1)) ** 2
)  # of the data's variance
beta = 1 - kept[1:] / kept[:-1]


class Denoiser:
    """The mean of the step back from level t, as a function of the point."""

    def __init__(self, features, samples=4_000):
        self.centres = 1.4 * rng.standard_normal((features, 2))
        clean, weights = blobs(samples), []
        for level in kept[1:]:
            noise = rng.standard_normal(clean.shape)
            rows = self.rows(np.sqrt(level) * clean + np.sqrt(1 - level) * noise)
            square = rows.T @ rows + 1e-3 * np.eye(rows.shape[1])
            weights.append(np.linalg.solve(square, rows.T @ noise))
        self.weights = np.stack(weights)

    def rows(self, x):
        square = ((x[:, None, :] - self.centres) ** 2).sum(axis=-1)
        return np.concatenate([np.exp(-3.0 * square), x, np.ones((len(x), 1))], axis=1)

    def mean(self, x, t):
        noise = np.einsum("nf,nfd->nd", self.rows(x), self.weights[t])
        part = beta[t] / np.sqrt(1 - kept[t + 1])
        return (x - part[:, None] * noise) / np.sqrt(1 - beta[t])[:, None]


target, draft = Denoiser(200), Denoiser(0)

# %%
# One call of the target sees a point, its k drafts and theirs, LENGTH deep. It verifies along the
# drafts that are accepted, and draws one step more, as with tokens. The optimal verifier is planned
# for some shifts; between them it stays lossless. The call's batch is large, k^LENGTH points: what
# this counts is how often the target is waited for.

SHIFTS = [0.0, *np.geomspace(0.05, 3.2, 13)]


def sample(rule, k):
    """Return points, target calls for each, accepted drafts, and the shifts that were verified."""
    x, t = rng.standard_normal((CHAINS, 2)), np.full(CHAINS, STEPS - 1)
    calls, accepted, shifts = np.zeros(CHAINS), 0, [np.zeros(0)]
    while (t >= 0).any():
        going = np.flatnonzero(t >= 0)
        calls[going] += 1
        for level in range(LENGTH + 1):
            at, scale = t[going], np.sqrt(beta[t[going]])[:, None]
            end = target.mean(x[going], at)
            t[going] -= 1
            if level == LENGTH or rule is None:  # the step of the target itself
                x[going] = end + scale * rng.standard_normal(end.shape)
                break
            start = draft.mean(x[going], at)
            drafts = start[:, None] + scale[:, None] * rng.standard_normal((len(at), k, 2))
            found = rule.verify(
                drafts, draft_mean=start, target_mean=end, scale=scale, rng=rng
            )
            shifts.append(np.linalg.norm(end - start, axis=1) / scale[:, 0])
            x[going], accepted = found.output, accepted + found.accepted.sum()
            going = going[found.accepted & (t[going] >= 0)]
    return x, calls, accepted, np.concatenate(shifts)


# %%
# A call makes one step more than it accepts drafts, but for the last of a sample, so that the best
# acceptances α*(δ) at the points where the optimal verifier stood say how few calls a verifier of
# the same points can need. One draft is verified alike by all of them: what is apart there is
# chance.

COUNTS = (1, 2, 4, 8)
RULES = {
    "recursive rejection": GaussianRejection,
    "K-SEQ": GaussianKSeq,
    "optimal": lambda k: GaussianOptimal(k, SHIFTS),
}
plain = sample(None, 1)[0]
fine = np.linspace(0.0, 5.0, 26)
calls, least = {name: [] for name in RULES}, []
for name, rule in RULES.items():
    for k in COUNTS:
        points, found, accepted, shifts = sample(rule(k), k)
        calls[name].append(found.mean())
        print(
            f"{name}, {k} drafts: {found.mean():.2f} calls, {accepted / len(shifts):.3f} accepted"
        )
        if name == "optimal":
            best = np.interp(
                shifts, fine, optimal_acceptance(GaussianCurve(fine), otm.IID(k))
            )
            least.append(found.mean() + (accepted - best.sum()) / CHAINS)
            print(f"  at best {best.mean():.3f}, {least[-1]:.2f} calls")

with drawing.style():
    canvas, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    for cloud, label, colour in (
        (plain, "step by step", drawing.QUIET),
        (points, "8 drafts, optimal", drawing.INK),
    ):
        left.scatter(*cloud.T, s=9, color=colour, label=label, lw=0)
    left.set_aspect("equal")
    left.set_title("samples of one law", fontsize=10)
    left.set(xlim=(-2, 2), ylim=(-2, 2))
    left.legend(frameon=False, fontsize=9, loc="center")
    for i, (name, means) in enumerate(calls.items()):
        right.plot(
            COUNTS, means, color=drawing.SERIES[i], marker=drawing.MARKERS[i], label=name
        )
    right.plot(
        COUNTS, least, color=drawing.INK, ls=drawing.LINES[1], label="least, in the mean"
    )
    right.axhline(STEPS / (LENGTH + 1), color=drawing.QUIET, lw=1.0)
    right.text(1, STEPS / (LENGTH + 1) + 0.02, "every draft accepted", fontsize=9)
    right.set_xscale("log", base=2, subs=[])
    right.set_xticks(COUNTS, [str(k) for k in COUNTS])
    right.set_xlabel("drafts of a step")
    right.set_ylabel("target calls for a sample")
    right.set_title(f"{STEPS} without drafts", fontsize=10)
    right.legend(frameon=False, fontsize=9)

# %%
# One draft a step, but a chain of them verified as a whole. A chain that is verified step by step
# ends at the first rejection; as a block it ends where the product of the ratios so far says so,
# and a step that overshoots makes up for one that fell short. The block never keeps fewer, and the
# closer the models the more it is ahead: at a shift δ an endless chain keeps about 2/δ² steps as a
# block, and √(2π)/δ step by step.


def chained(length, block):
    """Return points and target calls for each, of chains of drafts."""
    x, t = rng.standard_normal((CHAINS, 2)), np.full(CHAINS, STEPS - 1)
    calls = np.zeros(CHAINS)
    while (t >= 0).any():
        going = np.flatnonzero(t >= 0)
        calls[going] += 1
        points, starts, ends, scales = [x[going]], [], [], []
        for step in range(length + 1):
            at = np.maximum(t[going] - step, 0)
            left = (t[going] >= step)[:, None]  # beyond the last step both models agree
            ends.append(np.where(left, target.mean(points[-1], at), 0.0))
            starts.append(np.where(left, draft.mean(points[-1], at), 0.0))
            scales.append(np.broadcast_to(np.sqrt(beta[at])[:, None], ends[-1].shape))
            points.append(starts[-1] + scales[-1] * rng.standard_normal(ends[-1].shape))
        drafts, starts, ends, scales = (
            np.stack(each, axis=1) for each in (points[1:], starts, ends, scales)
        )
        given = {
            "draft_mean": starts[:, :-1],
            "target_mean": ends,
            "scale": scales,
            "rng": rng,
        }
        if block:
            found = GaussianBlock(length).verify(drafts[:, :-1], **given)
            kept, output = found.accepted, found.output
        else:
            kept, output = one_by_one(drafts[:, :-1], **given)
        last = np.minimum(kept, t[going])  # the point that the sample stands at, from 0
        points = np.concatenate([drafts[:, :-1], output[:, None]], axis=1)
        points[np.arange(len(going)), kept] = output
        x[going] = points[np.arange(len(going)), last]
        t[going] -= last + 1
    return x, calls


def one_by_one(drafts, draft_mean, target_mean, scale, rng):
    """Return how many drafts of each chain are kept, and the target's point after them."""
    length, rule = drafts.shape[1], GaussianRejection(1)
    kept, output = np.full(len(drafts), length), target_mean[:, -1]
    output = output + scale[:, -1] * rng.standard_normal(output.shape)
    for step in reversed(range(length)):
        found = rule.verify(
            drafts[:, step : step + 1],
            draft_mean=draft_mean[:, step],
            target_mean=target_mean[:, step],
            scale=scale[:, step],
            rng=rng,
        )
        lost = ~found.accepted
        kept[lost], output[lost] = step, found.output[lost]
    return kept, output


LENGTHS = (1, 3, 7, 15)
rounds = {}
for block in (False, True):
    found = [chained(length, block) for length in LENGTHS]
    rounds["as a block" if block else "step by step"] = [calls.mean() for _, calls in found]
for name, means in rounds.items():
    for length, mean in zip(LENGTHS, means, strict=True):
        print(f"{name}, {length} drafted: {mean:.2f} calls")

# %%
# An endless chain of equal shifts keeps exp(Σ 2Φ(−δ√j/2)/j) − 1 steps as a block, by Spitzer's
# identity (docs/theory.md, "Blocks of Gaussian steps").

shifts = np.geomspace(0.1, 3.0, 25)
single = acceptance(otm.Maximal(), GaussianCurve(shifts), otm.IID(1))
j = np.arange(1, 50_000)
# every 2Φ(−δ√j/2) is one draft's acceptance at a shift of δ√j
terms = [
    acceptance(otm.Maximal(), GaussianCurve(d * np.sqrt(j)), otm.IID(1)) / j for d in shifts
]
endless = {
    "as a block": np.expm1(np.sum(terms, axis=1)),
    "step by step": single / (1 - single),
}
for name, counts in endless.items():
    for at in (0, 12, 24):
        print(f"{name}, shift {shifts[at]:.2f}: {counts[at]:.1f} steps kept")

with drawing.style():
    canvas, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    for i, name in enumerate(("step by step", "as a block")):
        look = {"color": drawing.SERIES[i], "label": name}
        left.plot(shifts, endless[name], ls=drawing.LINES[i], **look)
        right.plot(LENGTHS, rounds[name], marker=drawing.MARKERS[i], **look)
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xticks([0.1, 0.3, 1.0, 3.0], ["0.1", "0.3", "1", "3"])
    left.set_yticks([0.1, 1.0, 10.0, 100.0], ["0.1", "1", "10", "100"])
    left.minorticks_off()
    left.set_xlabel("distance of the means δ, in standard deviations")
    left.set_ylabel("steps kept of an endless chain")
    left.set_title(
        f"δ = 0.1: {endless['as a block'][0]:.0f} steps kept as a block, "
        f"{endless['step by step'][0]:.0f} one by one",
        fontsize=10,
    )
    least = [STEPS / (length + 1) for length in LENGTHS]
    right.plot(
        LENGTHS, np.ceil(least), color=drawing.QUIET, lw=1.0, label="every draft accepted"
    )
    right.set_xlabel("drafted steps in a row")
    right.set_ylabel("target calls for a sample")
    right.set_title(
        f"{LENGTHS[-1]} drafted: {rounds['as a block'][-1]:.2f} calls as a block, "
        f"{rounds['step by step'][-1]:.2f} one by one",
        fontsize=10,
    )
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=9)
