"""Write the neutral record of an engine that writes none: one line a verification step."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, final

from otm.errors import InvalidParameter
from otm.pmf import check_count, check_real


@final
class StepRecord:
    """Write acceptance step by step, in a form that `read_acceptance` and `otm plan` read.

    A line is on the disk when a call returns, so that a job that is killed loses none; a file that
    exists is gone on with. What engines tell differs: use `step` where accepted drafts are known,
    `calls` where it is the tokens of each target call (transformers' streamer, OpenVINO GenAI's
    `m_batch_sizes`), `flags` where each token says whether it was drafted (MLX-LM's `from_draft`).

    Args:
        path: of the file, JSON lines.

    Cost: the file is opened and closed for every line.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "steps.jsonl"
    >>> record = StepRecord(path)
    >>> record.step("a", accepted=2, offered=4)
    >>> record.calls("b", [3, 1, 5], offered=4)
    >>> record.flags("c", [True, True, False, False], offered=4)
    >>> from otm.engines import read_acceptance
    >>> found = read_acceptance(path)
    >>> [part.mean for part in found.parts]
    [3.0, 3.0, 2.0]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path

    def step(
        self,
        request: object,
        *,
        accepted: int,
        offered: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Write one step.

        Args:
            request: what tells its steps from those of others.
            accepted: drafts that the target kept, without the token that it adds.
            offered: tokens that it checked; None if unknown.
            seconds: the step took, drafts included; None if unknown.

        Raises:
            InvalidParameter: unless these are such numbers, and no more is accepted than offered.
        """
        taken = check_count(accepted, name="accepted", minimum=0)
        if offered is not None and check_count(offered, name="offered", minimum=0) < taken:
            raise InvalidParameter(
                f"A step accepts at most what is offered; got {taken} of {offered}. Was the "
                "target's own token counted?"
            )
        line: dict[str, Any] = {"request": str(request), "offered": offered, "accepted": taken}
        if seconds is not None:
            line["seconds"] = check_real(seconds, name="seconds", low=0.0)
        with open(self._path, "a", encoding="utf-8") as file:  # noqa: PTH123  # any path
            file.write(json.dumps(line) + "\n")

    def calls(self, request: object, emitted: Iterable[int], *, offered: int | None = None) -> None:
        """Write a step for each target call from the tokens emitted, the target's own included."""
        for tokens in emitted:
            self.step(request, accepted=int(tokens) - 1, offered=offered)

    def flags(
        self, request: object, drafted: Iterable[bool], *, offered: int | None = None
    ) -> None:
        """Write a step for each token that was not drafted and so ends a step.

        Drafts at the end of a text are of a step that was cut, and left out.
        """
        accepted = 0
        for is_draft in drafted:
            accepted += 1
            if not is_draft:
                self.step(request, accepted=accepted - 1, offered=offered)
                accepted = 0

    def streamer(self, request: object, *, offered: int | None = None) -> Streamer:
        """Return a streamer for transformers' `generate(assistant_model=…, streamer=…)`, which is
        handed the prompt, and then the tokens of each target call.
        """
        return Streamer(self, request, offered)


@final
class Streamer:
    """A streamer of one request, made by `StepRecord.streamer`."""

    def __init__(self, record: StepRecord, request: object, offered: int | None) -> None:
        self._record, self._request, self._offered = record, request, offered
        self._prompt_is_over = False

    def put(self, tokens: Any) -> None:
        """Take the prompt, then the tokens of a target call."""
        if self._prompt_is_over:
            size = int(getattr(tokens, "numel", tokens.__len__)())
            self._record.calls(self._request, [size], offered=self._offered)
        self._prompt_is_over = True

    def end(self) -> None:
        """Be ready for another prompt."""
        self._prompt_is_over = False
