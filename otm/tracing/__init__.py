"""What a sampler does with its random numbers, followed draw by draw: the law of its answers, exact
where it can be.
"""
