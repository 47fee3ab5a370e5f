"""Real engines on a CPU: a tiny pair whose law is known, what each writes, and what that proves.

`python -m evidence.engines [NAME …]` makes an environment for each engine in `build/engines`, runs
`runners/NAME.py` in it, which imports the engine and never `otm`, and keeps a record in
`results/NAME.json`. `page` computes `docs/engines_run.md` from the records, and imports no engine.

A record is a JSON object:

* `packages`: versions by name; `machine`: processor, cores, Python; `install_seconds`.
* `target`, `draft`: logits after each letter, `(12, 12)`, in 64ths; `last`: the letter before the
  sampled texts; `length`: their tokens.
* `results`: an object for each configuration, the fields of `recording.Result`.

`--pair NAME` runs `runners/trained/NAME.py` with a pair of trained models of `pairs.py`, and
`own_loop.py`, the loop of this library in transformers. What they write is condensed by
`predicted.py`, which computes the steps that are due, into `results/PAIR/NAME.json`; the tables are
made by `gains.py`.
"""
