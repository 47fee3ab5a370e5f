"""Other people's verifiers in the signature of `otm.audit`.

`assisted`: Hugging Face transformers, its sampling function alone and a whole
`generate(assistant_model=…)`. `engines`: templates for kernels that take logits or probabilities
and return tokens.
"""
