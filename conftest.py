"""What every doctest may use by name."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object]) -> None:
    import otm
    from otm.sequence import TableModel, ZerothOrder
    from otm.trees import TreeShape

    doctest_namespace.update(np=np, otm=otm, Problem=otm.Problem, IID=otm.IID, KSeq=otm.KSeq)
    doctest_namespace.update(RecursiveRejection=otm.RecursiveRejection, TableModel=TableModel)
    doctest_namespace.update(TreeShape=TreeShape, ZerothOrder=ZerothOrder)
