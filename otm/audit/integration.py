"""What the audits by integration share: a verdict on a law that was found, up to rounding.

The law comes from `otm.tracing.output_law`, or from a verifier's own kernel. A black box is called
"not lossless" beyond what is unproved of it only.
"""

from __future__ import annotations

import abc
import dataclasses

from otm.audit.coverage import Coverage
from otm.audit.report import SingleAudit, Verdict
from otm.pmf import check_real
from otm.tracing.output_law import Method, OutputLaw, rounding_tolerance
from otm.tracing.probing import FALSE_ALARM, GRID

BRANCHING = "branching on draws"
"""The means of an audit of code that draws by itself."""

_MEANS: dict[Method, str] = {
    "kernel": "summing the kernel",
    "traced": "exact integration",
    "branched": BRANCHING,
    "probed": "probing",
}
_HOW = {
    "kernel": "the verifier's own kernel, summed over every {drafts}",
    "traced": "run on tracing numbers over every {drafts}: exact integration over the uniforms, "
    "{cells} boxes",
    "branched": "run on tracing numbers over every {drafts}, divided by the outcomes of what it "
    "draws itself: exact, {cells} parts",
    "probed": "probed as a black box over every {drafts}: exact if no cell of the uniforms is "
    "narrower than 1/64 along an axis; without that assumption at most {unproved:.2g} is unproved, "
    "{cells} cells",
}


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class IntegratedAudit(SingleAudit):
    """An audit that knows the law of the output.

    Attributes:
        tolerance: the largest total variation that rounding explains.
        error: bound on the error of `total_variation` and of the acceptances beyond rounding; 0
            where the trace is complete.
        unproved: bound on the probability of what a black box may do otherwise than probing found,
            exceeded with a probability of at most 1e-9; 0 where it was no black box.
        method: how the law of the output was found.
        cells: how many boxes of uniforms were told apart, over all drafts.
    """

    tolerance: float
    error: float
    unproved: float = 0.0
    method: Method
    cells: int

    @property
    @abc.abstractmethod
    def total_variation(self) -> float:
        """How far the law of the output is from the target's."""

    @property
    @abc.abstractmethod
    def tested(self) -> Coverage:
        """What was tested, but for how."""

    @property
    @abc.abstractmethod
    def again(self) -> str:
        """Python that repeats the audit, with {} for the candidate's name."""

    @property
    def verdict(self) -> Verdict:
        """What rounding, `error` and `unproved` let be said of the output's law."""
        if self.total_variation - max(self.error, self.unproved) > self.tolerance:
            return "not lossless"
        return "lossless" if self.total_variation + self.error <= self.tolerance else "undecided"

    @property
    def severity(self) -> float:
        """The total variation."""
        return self.total_variation

    @property
    def drawn(self) -> None:
        """No samples."""
        return

    @property
    def coverage(self) -> Coverage:
        """What was tested, how its law was found, and where a fault may hide from that."""
        hidden = () if self.method == "kernel" else ("state kept between calls",)
        if self.method == "probed":
            hidden = (*hidden, f"cells of the uniforms narrower than 1/{GRID}")
        return dataclasses.replace(
            self.tested,
            by=((_MEANS[self.method], 1),),
            # the prediction of a black box is held against samples of it
            false_alarm=FALSE_ALARM if self.unproved else 0.0,
            untested=(*hidden, *self.tested.untested),
        )

    def variation(self, value: str) -> str:
        """Return the total variation with what is known of its error."""
        error = f", known to ± {self.error:.2g}" if self.error else ""
        unproved = f", unproved at most {self.unproved:.2g}" if self.unproved else ""
        return f"**{value}** (rounding explains {self.tolerance:.1g}{error}{unproved})"

    def how(self, drafts: str) -> str:
        """Return how the law was found, over every one of `drafts`."""
        return _HOW[self.method].format(drafts=drafts, cells=self.cells, unproved=self.unproved)


def check_tolerance(tolerance: float | None, num_tokens: int, k: int) -> float:
    """Return the tolerance given, or what rounding explains."""
    if tolerance is None:
        return rounding_tolerance(num_tokens, k)
    return check_real(tolerance, name="tolerance", low=0.0, high=1.0)


def allowed_by(law: OutputLaw, given: float | None, allowed: float) -> float:
    """Return the tolerance of the arithmetic that random numbers met unless one was given."""
    return allowed * law.rounding if given is None else allowed
