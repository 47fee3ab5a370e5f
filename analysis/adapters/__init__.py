"""Other people's verifiers in the signature of `otm.audit`, and a batched one that passes.

`textbook`: the logic of a widely copied listing, with its faults. `blocks`: the correct batched
version in torch. `assisted`: Hugging Face transformers, its sampling function alone and a whole
`generate(assistant_model=…)`. `engines`: templates for kernels that take logits or probabilities
and return tokens.
"""
