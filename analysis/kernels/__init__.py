"""What an engine copies: batched code in torch that never waits for its device.

`step`: what every verification takes and returns. `chain`: one drafted sequence, token by token or
as a block. `scores`: K sequences by refined scores. `trees`: distinct children, from the root down.
`sglang`: all of these as that engine calls them. `noise`: the tree on shared noise, from the noise
to the tokens that match. `transformers`: that noise in `generate`.
"""
