"""`vllm bench serve --save-result`: JSON with counts and rates of one run.

`spec_decode_num_drafts`, `…_draft_tokens`, `…_accepted_tokens`, `…_acceptance_rate` in per cent,
`…_acceptance_length` with the bonus token, `…_per_position_acceptance_rates`: accepted at a
position over drafts, as fractions; tools that post-process the file write these in per cent as
well. Which it is follows from the counts: the rates add up to accepted tokens over drafts, or to a
hundred times that; neither is an error.

Source of the form: github.com/vllm-project/vllm, vllm/benchmarks/serve.py at 009e6d4a.
"""

from otm.engines.records.fields import Fields, form_of_objects

_RATES = "spec_decode_per_position_acceptance_rates"

FORM = form_of_objects(
    name="vLLM bench",
    marks=f'JSON with "{_RATES}" and "spec_decode_num_drafts"',
    unit="run",
    convention="acceptance_length counts the bonus token, rates do not",
    fields=Fields(
        steps=("spec_decode_num_drafts",),
        accepted=("spec_decode_accepted_tokens", "spec_decode_num_accepted_tokens"),
        drafted=("spec_decode_draft_tokens", "spec_decode_num_draft_tokens"),
        rates=(_RATES,),
    ),
    find=lambda document: document.objects(_RATES, "spec_decode_num_drafts"),
)
