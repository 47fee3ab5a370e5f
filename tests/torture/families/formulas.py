"""The promises of `tests.torture.functions`, a family each."""

from __future__ import annotations

import functools

from tests.torture.frame import family
from tests.torture.functions import FAMILIES
from tests.torture.promises import trials

for _name, _promises in FAMILIES.items():
    family(_name)(functools.partial(trials, _promises))
