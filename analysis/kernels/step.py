"""One verification step of B requests as tensors: arguments and result of every kernel.

A request has n nodes: 0 is the last token of its text, the others are its drafts.

    candidates  (B, n) int64     the nodes' tokens, −1 where there is no draft; that of node 0 is
                                 not read
    target      (B, n, V)        the target's next-token probabilities after each node
    draft       (B, m, V')       the probabilities by which the children of nodes 0..m − 1 were
                                 drawn; all nodes with children are among them; V' ≤ V, further
                                 tokens were never drafted; None where each draft was sure
    uniforms    (B, n)           independent in [0, 1): column i − 1 tests node i, the last is for
                                 a draw that concerns the whole request
    final       (B,)             one more, for the token after the accepted ones

Shapes depend on shapes alone and no value is read back from the device: a step fits into a CUDA
graph and into one `torch.compile(fullgraph=True)`. Probabilities are float32 or float64, sums are
in their precision.

A request is refused (`count` 0, every token −1, the others unharmed) where the decision meets

1. a NaN, or an infinite probability of the target;
2. a draft that its own law cannot have drawn: p(x) = 0, a sibling's token where siblings are
   distinct among them;
3. a row without mass, of the target where a token is drawn, of the draft where bins are summed;
4. for `optimal_by_vertex` unequal rows of equal prefixes, where they make a 2 of a draft.

Nothing else is refused, however sharp the models are: p may be the smallest number above 0. What
distinct siblings leave of a row of p in float64 should not be below the smallest normal number,
2e-308: the next sibling is drawn from that rest, and its precision is the rule's. Whether a step of
kind 4 is refused depends on its drafts, so whoever drafts again biases the text: end the request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from otm.errors import InvalidParameter, ShapeMismatch

Tensor = torch.Tensor


@dataclasses.dataclass(frozen=True)
class Verified:
    """The decision of a step: tokens, nodes and the number of tokens.

    Attributes:
        tokens: `(B, D + 1)` int64, the accepted drafts and the token after them; −1 after the last.
        nodes: `(B, D + 1)` int64, the node after which each of them stands, the root first; −1
            after the last.
        count: `(B,)` int64, the number of tokens, one more than of accepted drafts; 0 where the
            request is refused.
    """

    tokens: Tensor
    nodes: Tensor
    count: Tensor

    def where(self, sound: Tensor) -> Verified:
        """Return the decision with all requests refused that are not sound.

        Args:
            sound: `(B,)` bool.
        """
        refused = sound.logical_not()
        return Verified(
            self.tokens.masked_fill(refused[:, None], -1),
            self.nodes.masked_fill(refused[:, None], -1),
            self.count.masked_fill(refused, 0),
        )


@dataclasses.dataclass(frozen=True)
class Shard:
    """The tokens of the vocabulary on one device: one run for each rank, in the order of ranks.

    Attributes:
        rank, ranks: the number of this device, and of devices.
        first: its first token.
        all_reduce: adds a tensor over all ranks in place, as `torch.distributed.all_reduce` does.
    """

    rank: int
    ranks: int
    first: int
    all_reduce: Callable[[Tensor], object]

    def side_by_side(self, own: Tensor) -> Tensor:
        """Return the values of all ranks along a new last axis, gathered by a sum with 0.

        Args:
            own: `(…)` of any numeric type, the values of this rank.
        """
        slots = own.new_zeros((*own.shape, self.ranks))
        slots[..., self.rank] = own
        self.all_reduce(slots)
        return slots

    def best(self, own: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest value over ranks and the token of that value; of equals the first.

        Args:
            own: `(…)` of any floating type, the largest value of this rank.
            token: `(…)` int64, its token, counted from the rank's first.
        """
        best, shard = self.side_by_side(own).max(dim=-1, keepdim=True)
        return best[..., 0], self.side_by_side(token + self.first).gather(-1, shard)[..., 0]


def probabilities(logits: Tensor, temperature: Tensor, *, shard: Shard | None = None) -> Tensor:
    """Return softmax(logits/T) in float32, with all mass on the first largest logit where T = 0.

    Args:
        logits: `(B, n, V)` of any floating type; −∞ where a token is masked.
        temperature: `(B,)` of any floating type, at least 0; else the request's rows are NaN.
        shard: the tokens of these logits; all if None.
    """
    heat = temperature[:, None, None]
    values = logits.float()
    largest, token = values.max(dim=-1)
    if shard is not None:
        largest, token = shard.best(largest, token)
        token = token - shard.first
    largest, token = largest[..., None], token[..., None]
    # a NaN among the logits stays one
    whole = torch.where(largest.isfinite(), 1.0, torch.nan)
    inside = (token >= 0) & (token < values.shape[-1])
    kept = torch.where(inside, whole, 0.0 * whole)
    sure = torch.zeros_like(values).scatter_(-1, token.clamp(0, values.shape[-1] - 1), kept)
    warm = values / torch.where(heat > 0.0, heat, 1.0)
    if shard is None:
        warm = torch.softmax(warm, dim=-1)
    else:
        warm = (warm - largest / torch.where(heat > 0.0, heat, 1.0)).exp()
        total = warm.sum(dim=-1, keepdim=True)
        shard.all_reduce(total)
        warm = warm / total
    return torch.where(heat > 0.0, warm, torch.where(heat == 0.0, sure, torch.nan))


def draw(mass: Tensor, uniform: Tensor) -> Tensor:
    """Return tokens `(B,)` with probability mass/Σ mass, by the inverse of the running sum.

    Args:
        mass: `(B, V)` float32 or float64, not negative.
        uniform: `(B,)` float32 or float64 in [0, 1).
    """
    running = mass.cumsum(dim=-1)
    sought = (uniform[:, None] * running[:, -1:]).to(running.dtype)
    return find(mass, running, sought)[:, 0]


def find(mass: Tensor, running: Tensor, sought: Tensor) -> Tensor:
    """Return the first places `(B, 1)` at which running sums of masses exceed a number, int64.

    Args:
        mass: `(B, V)` float32 or float64, not negative.
        running: `(B, V)` of the same type, its running sums.
        sought: `(B, 1)` of the same type, the number.
    """
    found = torch.searchsorted(running, sought, right=True)
    # u·total can round up to the total, and a sum in parallel be uneven where it should be flat:
    # then the last place that has mass; a NaN has no place, and any will do
    last = torch.searchsorted(running, running[:, -1:].contiguous())
    last = last.clamp_(max=mass.shape[-1] - 1)
    found = torch.minimum(found, last)
    return torch.where(mass.gather(1, found) > 0.0, found, last)


def can_be_drawn(drawn: Tensor, wanted: Tensor) -> Tensor:
    """Return True where a draft can have been drawn, p(x) > 0, with finite p(x) and q(x).

    Args:
        drawn, wanted: `(…)` float32 or float64, p(x) and q(x).
    """
    return (drawn > 0.0) & ((wanted - drawn).abs() < torch.inf)


def rows(table: Tensor, nodes: Tensor) -> Tensor:
    """Return the rows `(B, k, V)` of a table at nodes.

    Args:
        table: `(B, n, V)` of any type.
        nodes: `(B, k)` int64.
    """
    size, height, width = table.shape
    if size == 1:
        return table[0].index_select(0, nodes[0])[None]
    first = torch.arange(0, size * height, height, device=nodes.device)
    found = table.reshape(-1, width).index_select(0, (nodes + first[:, None]).flatten())
    return found.view(size, -1, width)


def entries(table: Tensor, nodes: Tensor, tokens: Tensor) -> Tensor:
    """Return the entries `(B, k)` of a table at nodes and tokens.

    Args:
        table: `(B, n, V)` of any type.
        nodes, tokens: `(B, k)` int64.
    """
    return table.flatten(1).gather(1, nodes * table.shape[-1] + tokens)


def drafted_by(draft: Tensor | None, sure: Tensor, target: Tensor) -> Tensor:
    """Return the draft's rows over the target's vocabulary.

    Args:
        draft: `(B, m, V')` float32 or float64, or None.
        sure: `(B, m)` int64, the tokens that are sure where there is no draft law.
        target: `(B, n, V)` float32 or float64.
    """
    if draft is None:
        found = torch.zeros_like(target[:, : sure.shape[1]])
        inside = (sure >= 0) & (sure < target.shape[-1])
        place = torch.where(inside, sure, 0)[..., None]
        return found.scatter_(-1, place, inside[..., None].to(found.dtype))
    missing = target.shape[-1] - draft.shape[-1]
    return torch.nn.functional.pad(draft, (0, missing)) if missing else draft


def decided(
    path: Tensor, drafts: Tensor, kept: Tensor, after: Tensor, total: Tensor, sound: Tensor
) -> Verified:
    """Return the decision that keeps the first drafts of a path and ends with a token.

    Args:
        path: `(B, D + 1)` int64, nodes from the root.
        drafts: `(B, D)` int64, the tokens of all of them but the root.
        kept: `(B,)` int64, the number of kept drafts.
        after: `(B,)` int64, the token after them.
        total: `(B,)` float32 or float64, the mass that this token was drawn from.
        sound: `(B,)` bool, whether the request can be answered.
    """
    sound = sound & (total > 0.0) & (total < torch.inf)
    place = torch.arange(path.shape[1], device=path.device)
    last = kept.masked_fill(sound.logical_not(), -1)[:, None]
    along, behind = torch.cat([drafts, after[:, None]], dim=1), place > last
    tokens = torch.where(place == last, after[:, None], along)
    return Verified(tokens.masked_fill(behind, -1), path.masked_fill(behind, -1), last[:, 0] + 1)


def check_step(
    candidates: Tensor, target: Tensor, draft: Tensor | None, uniforms: Tensor, final: Tensor
) -> None:
    """Refuse tensors that do not fit together, by shapes, types and devices only.

    Args:
        candidates: `(B, n)` int64, the nodes' tokens, node 0 the root; −1 where there is no draft.
        target: `(B, n, V)` float32 or float64, the target's next-token probabilities after each
            node.
        draft: `(B, m, V')` of the target's type, V' ≤ V, the probabilities by which the children
            of nodes 0..m − 1 were drawn; None if each draft was sure.
        uniforms: `(B, n)` float32 or float64 in [0, 1); column i − 1 tests node i.
        final: `(B,)` float32 or float64 in [0, 1), draws the token after the accepted drafts.

    Raises:
        ShapeMismatch: if a shape is another one.
        InvalidParameter: if a type or a device is another one.
    """
    if candidates.ndim != 2 or candidates.shape[1] < 2 or target.ndim != 3:
        raise ShapeMismatch(
            "candidates must be (B, n) with a root and drafts, target (B, n, V); their shapes are "
            f"{tuple(candidates.shape)} and {tuple(target.shape)}. Give the root a column."
        )
    size, nodes = candidates.shape
    wanted = {
        "target": (target, (size, nodes, target.shape[2])),
        "uniforms": (uniforms, (size, nodes)),
        "final": (final, (size,)),
    }
    if draft is not None:
        most = (size, min(nodes, draft.shape[1]), min(target.shape[2], draft.shape[2]))
        wanted["draft"] = (draft, most)
    for name, (tensor, shape) in wanted.items():
        if tuple(tensor.shape) != shape:
            raise ShapeMismatch(
                f"{name} must be {shape} for {size} requests of {nodes} nodes; its shape is "
                f"{tuple(tensor.shape)}. See analysis.kernels.step."
            )
        if not tensor.is_floating_point() or tensor.element_size() < 4:
            raise InvalidParameter(
                f"{name} must be float32 or float64; it is {tensor.dtype}. Convert it; of logits "
                "`probabilities` makes float32."
            )
        if name == "draft" and tensor.dtype != target.dtype:
            raise InvalidParameter(
                f"target and draft must be of one type; they are {target.dtype} and "
                f"{tensor.dtype}. Convert one."
            )
        if tensor.device != candidates.device:
            raise InvalidParameter(
                f"All tensors must be on one device; candidates are on {candidates.device}, {name} "
                f"on {tensor.device}. Move one."
            )
    if candidates.dtype != torch.int64:
        raise InvalidParameter(
            f"candidates must be int64; they are {candidates.dtype}. Convert them."
        )
