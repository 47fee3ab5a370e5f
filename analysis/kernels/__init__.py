"""What an engine copies: batched code in torch that never waits for its device.

`noise`: the tree on shared noise, from the noise to the tokens that match.
"""
