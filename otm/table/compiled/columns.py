"""Which columns and descriptions compiled rows fill, and where: looked up by name, so that an
insertion moves the rest.
"""

from __future__ import annotations

PER_K = (
    "optimum_iid",
    "kseq_iid",
    "recursive_rejection_iid",
    "naive_tree_iid",
    "naive_iid",
    "list_race_rule_iid",
    "poisson_representation_lower_without_replacement",
    "greedy_optimal_greedy",
    "naive_greedy",
    "naive_top_k",
)
OPTIMUM = PER_K.index("optimum_iid")
KSEQ = PER_K.index("kseq_iid")
RECURSIVE = PER_K.index("recursive_rejection_iid")
NAIVE_TREE = PER_K.index("naive_tree_iid")
NAIVE = PER_K.index("naive_iid")
LIST_RACE = PER_K.index("list_race_rule_iid")
POISSON = PER_K.index("poisson_representation_lower_without_replacement")
GREEDY_OPTIMAL = PER_K.index("greedy_optimal_greedy")
NAIVE_GREEDY = PER_K.index("naive_greedy")
TOP_K = PER_K.index("naive_top_k")

SINGLE = (
    "maximal_iid",
    "race_iid",
    "minhash_iid",
    "minhash_rule_iid",
    "lenience_iid",
    "typical_acceptance_iid",
    "fuzzy_iid",
)
MAXIMAL = SINGLE.index("maximal_iid")
RACE = SINGLE.index("race_iid")
MINHASH = SINGLE.index("minhash_iid")
MINHASH_RULE = SINGLE.index("minhash_rule_iid")
LENIENCE = SINGLE.index("lenience_iid")
TYPICAL = SINGLE.index("typical_acceptance_iid")
FUZZY = SINGLE.index("fuzzy_iid")

DESCRIBED = ("draft_entropy", "target_entropy", "tv", "kl_target_draft", "kl_draft_target")
DRAFT_ENTROPY = DESCRIBED.index("draft_entropy")
TARGET_ENTROPY = DESCRIBED.index("target_entropy")
TV = DESCRIBED.index("tv")
KL_TARGET_DRAFT = DESCRIBED.index("kl_target_draft")
KL_DRAFT_TARGET = DESCRIBED.index("kl_draft_target")
