"""Tokens of a call by trees along a sampled text, against the library's own decoders."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet
import pytest

from analysis.errors import AnalysisError
from analysis.models.causal import pair_models
from analysis.models.source import PairSource, load_source
from analysis.run.measure import ShardTask, measure_shard
from analysis.run.settings import Settings, check_settings
from analysis.run.tree_names import SCALE, tree_nodes, tree_statistics
from analysis.steps.nodes import DEPTH
from otm.sequence import LikeliestTree, Sampled

CPU, SIZES = PairSource(device="cpu"), (2, 8)


def test_columns_are_those_of_the_trees_along_the_text() -> None:
    """Likeliest trees anew by their decoder; float32 logits of two ways differ by about 1e-6."""
    settings = Settings(
        k=(1,), positions="target", new_tokens=12, trees=SIZES, columns=("kseq_iid",)
    )
    assert settings.recorded["trees"] == SIZES
    shard = measure_shard(ShardTask(0, CPU, settings, ((0, "Returns the number of items"),)))
    rows = pyarrow.parquet.read_table(pyarrow.BufferReader(shard.shard)).to_pandas()
    names = [name for name, _, _ in tree_statistics(SIZES)]
    assert tree_nodes(rows.columns) == list(SIZES)
    missing = rows[names].isna().to_numpy()
    # Twelve tokens are written, eleven have a context behind them; the last calls lack text.
    assert len(rows) == 12 and not missing[: 12 - DEPTH].any() and missing[12 - DEPTH :].all()
    assert rows[SCALE].dropna().nunique() == 1 and (rows[SCALE].dropna() > 0).all()
    there = rows[: 12 - DEPTH]
    for stem in ("noise_tree", "likeliest_tree"):
        assert (there[f"{stem}_n8"] >= there[f"{stem}_n2"]).all()  # one tree within the other
    assert (there[names[:-1]] >= 1.0 - 1e-12).all(axis=None)
    pair = load_source(CPU)
    draft, target = pair_models(pair, settings.pairs[0])
    context = tuple(pair.encode("Returns the number of items"))
    tree = LikeliestTree(8, DEPTH).draft(draft, context, Sampled(np.random.default_rng(0)))
    first = {one[len(context)] for one in tree.contexts() if one and len(one) > len(context)}
    accepted = float(target.next(context)[sorted(first)].sum())
    assert float(there["likeliest_tree_n8"].iloc[0]) >= 1.0 + accepted - 1e-4


def test_trees_want_texts_of_the_target() -> None:
    with pytest.raises(AnalysisError, match="--positions target"):
        check_settings(Settings(trees=(8,)), positions=("text", "target"))
    with pytest.raises(AnalysisError, match="--new-tokens 16"):
        short = Settings(trees=(8,), positions="target", new_tokens=DEPTH - 1)
        check_settings(short, positions=("text", "target"))
    assert tree_statistics(()) == []
