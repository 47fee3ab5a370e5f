"""`sglang.bench_serving --output-file`: JSON lines with a mean, `accept_length`.

The mean counts the root. It is the server's average since it started, over all of its steps: no
law, no number of steps.

Source of the form: github.com/sgl-project/sglang, python/sglang/bench_serving.py at 0033168f.
"""

from otm.engines.records.fields import Fields, form_of_objects

FORM = form_of_objects(
    name="SGLang bench",
    marks='JSON lines with "accept_length", "request_throughput" and "mean_ttft_ms"',
    unit="run",
    convention="accept_length counts the root",
    fields=Fields(mean=("accept_length",)),
    find=lambda document: document.objects("accept_length", "request_throughput", "mean_ttft_ms"),
    about=lambda found, parts: {
        "notes": ("A mean of the whole server: record meta_info's histogram to plan with.",)
    },
)
