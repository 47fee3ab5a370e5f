"""The common base of draft laws, verifiers and decoders: identifying parameters, and a name."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar


def parameter(
    check: Callable[..., Any], *, default: Any = dataclasses.MISSING, **limits: Any
) -> Any:
    """Declare a field of a scheme: the check of a given value, and the default, if any.

    Args:
        check: a function of (value, name=…, **limits) that returns the value or raises.
        default: the default value; None as a default passes unchecked.
        limits: further arguments of the check.
    """
    return dataclasses.field(default=default, metadata={"check": check, "limits": limits})


@dataclasses.dataclass(frozen=True)
class Scheme(abc.ABC):  # abstract by intent: a law, a verifier or a decoder
    """A frozen object identified by the parameters in the fields.

    `repr` is its identity: class and every parameter, as they are written to tables, manifests and
    shards. `str` is its display name, the same in tables, reports, figures and documents: the
    title, and those parameters that tell it from the plain one.

    Attributes:
        title: the field's name for the scheme.
        display_fields: names of the parameters that are shown even at their default.
    """

    title: ClassVar[str]
    display_fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            given = getattr(self, field.name)
            if "check" not in field.metadata or (given is None and field.default is None):
                continue
            value = field.metadata["check"](given, name=field.name, **field.metadata["limits"])
            object.__setattr__(self, field.name, value)

    def __str__(self) -> str:
        shown = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in self.display_fields or value != field.default:
                shown.append(
                    f"{field.name} = {value:g}"
                    if isinstance(value, float)
                    else f"{field.name} = {value}"
                )
        title = getattr(self, "title", type(self).__name__)
        return f"{title} ({', '.join(shown)})" if shown else title
