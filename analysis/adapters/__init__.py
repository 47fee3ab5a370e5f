"""Other people's verifiers in the signature of `otm.audit`, and a batched one that passes.

`blocks`: drafted blocks verified in torch, any batch size. `assisted`: Hugging Face transformers,
its sampling function alone and a whole `generate(assistant_model=…)`. `engines`: templates for
kernels that take logits or probabilities and return tokens.
"""
