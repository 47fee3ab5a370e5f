"""The public names of `otm`, once: type checkers and `otm/__init__.py` read this list."""

from . import (
    audit as audit,
    bounds as bounds,
    continuous as continuous,
    divergences as divergences,
    drafts as drafts,
    engines as engines,
    errors as errors,
    examples as examples,
    losses as losses,
    lossy as lossy,
    overlap as overlap,
    partial as partial,
    plot as plot,
    results as results,
    sequence as sequence,
    table as table,
    transport as transport,
    trees as trees,
    verifiers as verifiers,
)
from ._machine.versions import (
    show_versions as show_versions,
)
from .audit.callables import (
    from_callable as from_callable,
)
from .comparison import (
    compare as compare,
)
from .drafts import (
    IID as IID,
    Greedy as Greedy,
    Law as Law,
    Product as Product,
    ThresholdRace as ThresholdRace,
    TopK as TopK,
    WithoutReplacement as WithoutReplacement,
)
from .errors import (
    OtmError as OtmError,
)
from .logits import (
    Processing as Processing,
    from_logits as from_logits,
)
from .pmf import (
    normalise as normalise,
)
from .problem import (
    Problem as Problem,
)
from .results import (
    statistics as statistics,
)
from .table import (
    acceptance_table as acceptance_table,
)
from .transport import (
    optimum as optimum,
)
from .verbs import (
    acceptance as acceptance,
    acceptance_curve as acceptance_curve,
    coupling as coupling,
    estimate as estimate,
    kernel as kernel,
    optimal_acceptance as optimal_acceptance,
    optimal_acceptance_curve as optimal_acceptance_curve,
    optimal_cut as optimal_cut,
    prepare as prepare,
    sample as sample,
)
from .verifiers import (
    ActionDistance as ActionDistance,
    BoundedRegret as BoundedRegret,
    Cactus as Cactus,
    Cascade as Cascade,
    Ensemble as Ensemble,
    Fuzzy as Fuzzy,
    GreedyOptimal as GreedyOptimal,
    Grouped as Grouped,
    KSeq as KSeq,
    Lantern as Lantern,
    Lenience as Lenience,
    ListRace as ListRace,
    Mars as Mars,
    Maximal as Maximal,
    Mentored as Mentored,
    MinHash as MinHash,
    Naive as Naive,
    NaiveTree as NaiveTree,
    Optimal as Optimal,
    Race as Race,
    RecursiveRejection as RecursiveRejection,
    RelaxedAcceptance as RelaxedAcceptance,
    SelectThenReject as SelectThenReject,
    SpecHub as SpecHub,
    ThresholdMatching as ThresholdMatching,
    Tournament as Tournament,
    TransportPlan as TransportPlan,
    TvOptimal as TvOptimal,
    TypicalAcceptance as TypicalAcceptance,
    Verifier as Verifier,
    WithoutReplacementOptimal as WithoutReplacementOptimal,
)

__version__: str
