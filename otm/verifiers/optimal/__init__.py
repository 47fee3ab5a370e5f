"""The optimal verifier of i.i.d. drafts at full vocabulary: for one row, or a batch on a device."""

from otm.verifiers.optimal.batched import BatchedOptimalRule, prepare_batch
from otm.verifiers.optimal.verifier import Optimal

__all__ = ["BatchedOptimalRule", "Optimal", "prepare_batch"]
