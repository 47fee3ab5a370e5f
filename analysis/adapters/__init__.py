"""Other people's verifiers in the signature of `otm.audit`.

`engines`: templates for kernels that take logits or probabilities and return tokens.
"""
