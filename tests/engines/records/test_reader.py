"""Every form, written by hand from its field names; one run wherever a form can hold it.

Ten verifications in two requests: request 1 accepts 0, 1, 2, 2 and 2 drafts of two, request 2
accepts 0, 1, 2, 2, 2. So two steps accept none, two one and six two; survival .8 and .6; 2.4 tokens
a step.
"""

import inspect
import json
import operator
import re
from pathlib import Path

import numpy as np
import pytest

import otm
from otm.engines import records
from otm.engines.records import FORMS, parse_acceptance, printed, read_acceptance, reader
from otm.engines.records.record import AcceptanceRecord

STEPS = [0, 1, 2, 2, 2]


def payload(**changed):
    """What vLLM says of one of the two requests, in summary."""
    return {
        "mean_acceptance_length": 2.4,
        "draft_acceptance_rate": 0.7,
        "acceptance_histogram": [1, 1, 3],
        "num_spec_steps": 5,
        "num_accepted_draft_tokens": 7,
        "num_draft_tokens": 10,
        "num_spec_tokens": 2,
    } | changed


def response(found):
    return {
        "choices": [{"text": "x"}],
        "usage": {"completion_tokens": 12},
        "metrics": {"speculative_decoding": found},
    }


def lines(*values):
    return "".join(json.dumps(value) + "\n" for value in values)


DETAIL = {"per_step_accepted": STEPS, "per_step_drafted": [2] * 5}
META = {
    "prompt_tokens": 9,
    "completion_tokens": 13,
    "spec_verify_ct": 5,
    "spec_accept_length": 2.6,
    "spec_accepted_drafts": 7,
}
COUNTERS = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 4.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 6.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 20.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1.4e1
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 8.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 6.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e9
"""
VLLM_LOG = (
    "INFO 01-01 loggers.py: SpecDecoding metrics: Mean acceptance length: 2.40, "
    "Accepted throughput: 1.4 tokens/s, Drafted throughput: 2.0 tokens/s, Accepted: 14 tokens, "
    "Drafted: 20 tokens, Per-position acceptance rate: 0.800, 0.600, "
    "Avg Draft acceptance rate: 70.0%\n"
)
BENCH = {
    "request_throughput": 1.0,
    "mean_ttft_ms": 3.0,
    "std_itl_ms": float("nan"),
    "spec_decode_acceptance_rate": 70.0,
    "spec_decode_acceptance_length": 2.4,
    "spec_decode_num_drafts": 10,
    "spec_decode_draft_tokens": 20,
    "spec_decode_accepted_tokens": 14,
    "spec_decode_per_position_acceptance_rates": [0.8, 0.6],
}
PREFIX = "slot print_timing: id  {0} | task {0}7 | "
LLAMA_ONE_LINE = "".join(
    PREFIX.format(i) + "draft acceptance = 0.70000 (    7 accepted /    10 generated), "
    "mean acceptance length =  2.40, acceptance rate per position = (0.800, 0.600)\n"
    for i in range(2)
)
LLAMA_TWO_LINES = "".join(  # the two slots are interleaved
    PREFIX.format(i) + text
    for text in (
        "draft acceptance = 0.70000 (    7 accepted /    10 generated), mean len =  2.40\n",
        "     acc per pos = (0.800, 0.600)\n",
    )
    for i in range(2)
)
LLAMA_TOTALS = "".join(
    f"statistics        draft-mtp: #calls(b,g,a) =    1  {n:5} {n:5}, #gen drafts = {n:5}, "
    f"#acc drafts = {n - 2}, #gen tokens = {2 * n:5}, #acc tokens = {a:4}, "
    f"#mean acc len = {1 + a / n:.2f}, #acc rate/pos = ({r}), dur(b,g,a) = 0.004, 1.0, 0.1 ms\n"
    for n, a, r in ((5, 7, "0.800, 0.600"), (10, 14, "0.800, 0.600"))
)
TRT = {"iter": 3, "iterLatencyMS": 20.0, "kvCacheStats": {}}


def iteration(requests, accepted, drafted):
    stats = {
        "numDraftTokens": drafted,
        "numAcceptedTokens": accepted,
        "numRequestsWithDraftTokens": requests,
        "acceptanceLength": (accepted + requests) / requests if requests else 0.0,
    }
    return TRT | {"specDecodingStats": stats}


TRT_RESPONSE = {"choices": [{"text": "x", "avg_decoded_tokens_per_iter": 2.4}]}
SPECULATORS = (
    "subset,num_drafts,num_draft_tokens,num_accepted_tokens,acceptance_length,acceptance_at_pos_0,acceptance_at_pos_1\n"
    "qa,4.0,8.0,6.0,2.5,0.75,0.75\nrag,6.0,12.0,8.0,2.3333333333333335,0.8333333333333334,0.5\n"
)

WITH_LAW = {
    "vLLM counters": COUNTERS,
    "llama.cpp counters": COUNTERS.replace("vllm:", "llamacpp:"),
    "vLLM log": VLLM_LOG,
    "vLLM per-request metrics, summary": lines(
        response(payload()), response(None), response(payload())
    ),
    "vLLM per-request metrics, detailed": "".join(
        f"data: {json.dumps(response(payload(**DETAIL)))}\n\n" for _ in range(2)
    ),
    "vLLM per-request metrics, summary, of a choice": json.dumps(
        {
            "choices": [
                {
                    "speculative_decoding_stats": payload(
                        acceptance_histogram={"0": 1, "1": 1, "2": 3}
                    )
                }
            ]
            * 2
        }
    ),
    "vLLM bench": json.dumps(BENCH, indent=1),
    "vLLM bench, per cent": json.dumps(
        BENCH | {"spec_decode_per_position_acceptance_rates": [80.0, 60.0]}
    ),
    "SGLang meta_info": json.dumps(
        [{"text": "x", "meta_info": META | {"spec_accept_histogram": [1, 1, 3]}}] * 2
    ),
    "SGLang meta_info, new names": lines(
        *[{"meta_info": META | {"spec_correct_drafts_histogram": [1, 1, 3]}}] * 2
    ),
    "SGLang meta_info, caps": lines(
        *[
            {
                "meta_info": META
                | {"spec_accept_histogram": [1, 1, 3], "spec_cap_lens_histogram": [0, 0, 5]}
            }
        ]
        * 2
    ),
    "AIPerf records of vllm": lines(
        *[payload(engine="vllm", acceptance_histogram={"0": 1, "2": 3, "1": 1})] * 2
    ),
    "TensorRT-LLM iterations": lines(
        iteration(0, 0, 0),
        *[iteration(1, a, 2) for a in STEPS * 2],
        iteration(1, 2, 2) | {"attentionDpRank": 1},
    ),
    "AIPerf summary": json.dumps(
        {
            "inter_token_latency": {"unit": "ms", "avg": 12.5},
            "pooled_spec_decode_acceptance_histogram": {"0": 2, "1": 2, "2": 6},
            "total_spec_decode_steps": {"unit": "count", "avg": 10.0},
            "total_accepted_draft_tokens": {"unit": "tokens", "avg": 14.0},
            "total_draft_tokens": {"unit": "tokens", "avg": 20.0},
        }
    ),
    "vLLM counters, AIPerf's scrapes": json.dumps(
        {
            "metrics": {
                f"vllm:spec_decode_num_{name}": {
                    "type": "counter",
                    "series": [
                        {"labels": labels, "stats": {"total": total, "rate": 0.1}}
                        for labels, total in series
                    ],
                }
                for name, series in {
                    "drafts": [({"engine": "0"}, 10.0)],
                    "accepted_tokens_per_pos": [({"position": "0"}, 8.0), ({"position": "1"}, 6.0)],
                }.items()
            }
        }
    ),
    "TensorRT-LLM responses": lines(
        *[TRT_RESPONSE | {"metrics": {"speculative_decoding": payload()}}] * 2
    ),
    "llama.cpp log": LLAMA_ONE_LINE,
    "llama.cpp log, two lines": LLAMA_TWO_LINES,
    "llama.cpp log, totals": LLAMA_TOTALS,
    "speculators acceptance.csv": SPECULATORS,
    "speculators acceptance.csv, per cent": SPECULATORS.replace("0.75,0.75", "75.0,75.0").replace(
        "0.8333333333333334,0.5", "83.33333333333334,50.0"
    ),
}


OF_REQUESTS = ("vLLM per", "SGLang", "AIPerf records", "TensorRT-LLM resp", "llama.cpp log")


@pytest.mark.parametrize(("name", "text"), WITH_LAW.items(), ids=WITH_LAW)
def test_engines_agree_on_one_run(name, text):
    record = parse_acceptance(text)
    assert name.startswith(record.form)
    assert record.steps == pytest.approx(10, rel=1e-9)
    assert record.pooled_mean == pytest.approx(2.4, rel=1e-12)
    np.testing.assert_allclose(record.survival.survival, [0.8, 0.6], rtol=1e-9)
    assert (record.measured, bool(record.convention)) == (2, True)
    requests = 2 if name.startswith(OF_REQUESTS) and "totals" not in name else None
    assert (record.requests, record.request_mean) == (requests, requests and pytest.approx(2.4))
    unknown = name in (
        "SGLang meta_info",
        "SGLang meta_info, new names",
        "vLLM counters, AIPerf's scrapes",
    )
    assert record.censoring == ("unknown" if unknown else "none")


SGLANG_LOG = (  # of 2025-05 and 2026-09, rates without the root; the first again with the root
    "[2025-05-27 20:14:38 TP0] Decode batch. #running-req: 18, #token: 16384, token usage: 0.71, "
    "accept len: 2.40, accept rate: 0.47, cuda graph: True, gen throughput (token/s): 2520.18, "
    "#queue-req: 3\n",
    "[2026-09-30 08:30:35] Decode batch, #running-req: 9, #full token: 11584, full token usage: "
    "0.01, mamba num: 36, mamba usage: 0.60, accept len: 3.04, accept rate: 0.68, cuda graph: "
    "True, gen throughput (token/s): 22.40, #queue-req: 1\n",
    "Decode batch [120], #running-req: 18, #token: 16384, token usage: 0.71, accept len: 2.40, "
    "accept rate: 0.60, cuda graph: True, gen throughput (token/s): 2520.18, #queue-req: 3, \n",
)
SGLANG_PAGE = """sglang:generation_tokens_total{model_name="m",is_streaming="false"} 15000
sglang:generation_tokens_total{model_name="m",is_streaming="true"} 3000
sglang:num_requests_total{model_name="m"} 500
sglang:spec_verify_calls_total{engine_type="unified"} 7000
sglang:spec_accept_length{tp_rank="0"} 2.8
sglang:spec_accept_rate{tp_rank="0"} 0.6
"""
VLLM_V0 = (  # as printed by version 0.6.3 of vllm-project/vllm
    "INFO 10-16 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.642, System "
    "efficiency: 0.598, Number of speculative tokens: 3, Number of accepted tokens: 8547, Number "
    "of draft tokens: 13311, Number of emitted tokens: 10616.\n"
)
LLAMA_2025 = (
    "slot print_timing: id  0 | task 0 | \nprompt eval time =      10.00 ms /    20 tokens (    "
    "0.50 ms per token,  2000.00 tokens per second)\n       eval time =    2187.50 ms /   125 "
    "tokens (   17.50 ms per token,    57.14 tokens per second)\n"
    "slot print_timing: id  0 | task 0 | \ndraft acceptance rate = 0.63415 (   78 accepted "
    "/   123 generated)\n"
)
LLAMA_2026 = (
    "slot print_timing: id  0 | task 0 | draft acceptance = 0.63415 (   78 accepted /   123 "
    "generated), mean len =  2.64\n"
)


@pytest.mark.parametrize(
    ("form", "text", "mean", "drafts"),
    [
        ("SGLang log", SGLANG_LOG[0], 2.4, 3),
        ("SGLang log", SGLANG_LOG[1], 3.04, 3),
        ("SGLang log", SGLANG_LOG[2], 2.4, 3),
        ("SGLang log", SGLANG_LOG[0] + SGLANG_LOG[1], (18 * 2.4 + 9 * 3.04) / 27, 3),
        ("SGLang log", SGLANG_LOG[0].replace(" accept rate: 0.47,", ""), 2.4, None),
        ("SGLang log", SGLANG_LOG[0] + SGLANG_LOG[1].partition("04, accept")[0], 2.4, 3),
        ("SGLang counters", SGLANG_PAGE, 17500 / 7000, 3),
        (
            "SGLang counters",
            "".join(SGLANG_PAGE.splitlines(True)[-2:]),
            2.8,
            3,
        ),
        ("vLLM V0 log", VLLM_V0, 10616 / 4437, 3),
        ("vLLM V0 log", VLLM_V0.replace("13311", "3").replace("10616", "2") + VLLM_V0, 2.3926, 3),
        ("llama.cpp log", LLAMA_2025, 124 / 46, 123 / 46),
        ("llama.cpp log", LLAMA_2026, 2.64, 123 * 1.64 / 78),
        (
            "llama.cpp log",
            "n_draft   = 16\nn_predict = 125\nn_drafted = 123\nn_accept  = 78\n"
            "accept    = 63.415%\n",
            125 / 47,
            123 / 47,
        ),
        (
            "llama.cpp log",
            "n_predict = 125\nn_drafted = 123\nn_accept  = 78\n",
            125 / 47,
            123 / 47,
        ),
        ("TensorRT-LLM responses, means", json.dumps(TRT_RESPONSE), 2.4, None),
    ],
)
def test_lines_that_tell_means(form, text, mean, drafts):
    """V0's accepted tokens also stand behind rejected ones: 1 + 8547/4437 would be 2.93."""
    record = parse_acceptance(text)
    assert (record.form, record.measured) == (form, 0)
    assert record.pooled_mean == pytest.approx(mean, rel=1e-4)
    known = record.drafts_per_step or record.length
    assert known == (None if drafts is None else pytest.approx(drafts, rel=1e-4))


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("vllm:num_requests_running 3\nvllm:generation_tokens_total 5\n", "vLLM"),
        (SGLANG_LOG[0].replace("accept len: 2.40, accept rate: 0.47, ", ""), "SGLang"),
        (LLAMA_2025.partition("draft acc")[0], "llama.cpp"),
    ],
)
def test_an_engine_that_does_not_speculate_is_told_so(text, engine):
    with pytest.raises(otm.errors.InvalidParameter, match=f"{engine}'s, but speculation is off"):
        parse_acceptance(text)


@pytest.mark.parametrize(
    ("text", "running", "token", "draft"),
    [
        (SGLANG_LOG[0] + SGLANG_LOG[1] + SGLANG_LOG[0], 18, 18 / 2520.18, None),
        (LLAMA_2025, 1, 2.1875 / 124, None),
        (
            "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 75.3 tokens/s, "
            f"Running: 6 reqs, Swapped: 0 reqs\n{VLLM_V0}SpecDecodeWorker stage times: "
            "average_time_per_proposal_tok_ms=3.57 scoring_time_ms=94.42 "
            "verification_time_ms=1.32\n",
            6,
            6 / 75.3,
            3.57e-3,
        ),
        (WITH_LAW["AIPerf summary"], 0, 12.5e-3, None),
        (lines(iteration(4, 6, 8)), 4, 0.020 * 4 / 10, None),
        (
            LLAMA_TOTALS + "       eval time =     100.00 ms /    11 tokens (x)\n",
            1,
            0.010,
            (1 / 10 + 1 / 20) / 2 * 1e-3,
        ),
        (  # what other ranks say is the same again
            lines(iteration(4, 6, 8), *[iteration(5, 5, 5) | {"attentionDpRank": 1}] * 2),
            4,
            0.020 * 4 / 10,
            None,
        ),
        (lines(TRT | {"specDecodingStats": None}, iteration(4, 6, 8)), 4, 0.020 * 4 / 10, None),
        (COUNTERS, None, None, None),
    ],
)
def test_times_that_records_hold(text, running, token, draft):
    times = parse_acceptance(text).times
    if running is None or times is None:
        assert times is running
        return
    assert (times.usual, times.draft) == (running, draft if draft is None else pytest.approx(draft))
    assert times.token[running] == pytest.approx(token, rel=1e-12)


@pytest.mark.parametrize("digits", ["9" * 5000, "-" + "9" * 5000, "1e999", "NaN"])
def test_numbers_that_no_engine_can_mean_are_refused_by_type(digits):
    texts = (
        f'{{"meta_info": {{"spec_verify_ct": {digits}, "spec_accept_histogram": [1, 2]}}}}',
        LLAMA_2026.replace("78 acc", f"{digits.strip('-')} acc"),
        SGLANG_PAGE.replace("7000", digits),
        COUNTERS.replace("8.0", digits),
    )
    for text in texts:
        with pytest.raises(otm.errors.OtmError):
            parse_acceptance(text)


def verified(**changed):
    """Ten of SGLang's steps in a file."""
    return json.dumps({"spec_verify_ct": 10} | changed)


def sglang(**changed):
    return json.dumps({"meta_info": META | {"spec_accept_histogram": [1, 1, 3]} | changed})


LATER = (
    VLLM_LOG.replace("Accepted: 14", "Accepted: 4")
    .replace("Drafted: 20", "Drafted: 80")
    .replace("0.800, 0.600", "0.100, 0.000")
    .replace("length: 2.40", "length: 1.10")
)
IDLE = (
    VLLM_LOG.replace("Accepted: 14", "Accepted: 0")
    .replace("0.800, 0.600", "0.000, 0.000")
    .replace("length: 2.40", "length: 1.00")
)
TWICE = {"meta_info": json.loads(sglang(spec_proposed_drafts=15))["meta_info"]}
CONFIGURED = (
    "spec_proposed_drafts is what was configured: whether steps drafted fewer is not recorded.",
)
MEANS = {"measured": 0, "censoring": "unknown", "mean": 2.4}
SPECFORGE = {
    "backend": "sglang",
    "dataset": "gsm8k",
    "samples": 3,
    "output_tokens": 27,
    "latency_seconds": 1.0,
    "throughput_tokens_per_second": 27.0,
    "average_acceptance_length": 2.5,
    "spec_verify_count": 10,
}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        # A server's mean has no number of steps.
        (
            lines(BENCH | {"accept_length": 2.4, "backend": "sglang"}).replace("spec_decode", "x"),
            MEANS | {"form": "printed mean", "steps": None, "request_mean": None},
        ),
        (
            lines(*[{"meta_info": META}] * 2),
            MEANS | {"form": "SGLang meta_info", "steps": 10, "request_mean": 2.4},
        ),
        (
            lines(iteration(4, 6, 8), iteration(6, 8, 12)),
            MEANS | {"form": "TensorRT-LLM iterations", "steps": 10, "request_mean": None},
        ),
        # Three prefills gave three of the 27 tokens; the mean over requests is as the file says.
        (json.dumps(SPECFORGE), MEANS | {"form": "SpecForge benchmark", "request_mean": 2.5}),
        # A long request that accepts little weighs in the one mean, not in the other.
        (
            lines(
                {"spec_verify_ct": 30, "spec_accept_histogram": [30, 0, 0]},
                {"spec_verify_ct": 10, "spec_accept_histogram": [0, 0, 10]},
            ),
            {"pooled_mean": 1.5, "request_mean": 2.0},
        ),
        # SGLang's length counts the root and the prefill's token, TensorRT-LLM's accepted tokens
        # exclude the bonus; where nothing but the length is told, its root is taken off.
        (verified(completion_tokens=25, spec_accept_length=2.5), {"pooled_mean": 2.4}),
        (json.dumps(iteration(10, 14, 20)), {"pooled_mean": 2.4}),
        (verified(spec_accept_length=2.4), {"pooled_mean": 2.4}),
        # What was configured follows from proposed drafts, of a response that repeats itself too.
        (
            lines(*[TWICE | {"usage": {"spec_tokens_details": TWICE["meta_info"]}}] * 2),
            {"requests": 2, "steps": 10, "length": 3, "censoring": "unknown"},
        ),
        (sglang(spec_proposed_drafts=12), {"length": None, "notes": CONFIGURED}),
        (f"{sglang(spec_proposed_drafts=15)}\n{sglang(spec_proposed_drafts=10)}", {"length": None}),
        # Draft lengths that differ are seen.
        (COUNTERS.replace("20.0", "17.0"), {"censoring": "hidden", "drafts_per_step": 1.7}),
        (COUNTERS.replace("draft_tokens", "other"), {"censoring": "unknown"}),
        (VLLM_LOG.replace("Drafted: 20", "Drafted: 17"), {"censoring": "hidden"}),
        (
            json.dumps(
                payload(
                    per_step_accepted=STEPS, per_step_drafted=[2, 1, 2, 2, 2], num_draft_tokens=9
                )
            ),
            {"censoring": "observed"},
        ),
        (json.dumps(payload(num_draft_tokens=9)), {"censoring": "hidden"}),
        (sglang(spec_cap_lens_histogram=[1, 1, 3]), {"censoring": "observed", "notes": ()}),
        # A response without its meta_info, or with one that tells nothing, is left out.
        (lines({"meta_info": None}, {"meta_info": {}}, json.loads(sglang())), {"requests": 1}),
        # Steps are listed if those of every request are.
        (
            lines(response(payload(**DETAIL)), response(payload())),
            {"form": "vLLM per-request metrics, summary", "listed": False},
        ),
        # A histogram may end early; the draft length is in the record.
        (
            json.dumps(payload(num_spec_tokens=4, num_draft_tokens=20)),
            {"survival.survival": [0.8, 0.6, 0, 0], "length": 4, "censoring": "none"},
        ),
        # Windows of a log are weighted by their steps.
        (
            f"{VLLM_LOG}other\n{LATER}",
            {"steps": 50, "pooled_mean": 1 + 18 / 50, "survival.survival": [12 / 50, 6 / 50]},
        ),
        (IDLE, {"steps": 10, "pooled_mean": 1.0}),
        (VLLM_LOG.replace("Accepted: 14 tokens, Drafted: 20 tokens, ", ""), {"steps": None}),
    ],
)
def test_what_a_record_says(text, told):
    record = parse_acceptance(text)
    for name, value in told.items():
        assert operator.attrgetter(name)(record) == pytest.approx(value), name


@pytest.mark.parametrize(
    ("text", "attribute", "said"),
    [
        (verified(completion_tokens=24), "survival", r"means only, 2\.3 tokens"),
        ("set,pos_0,pos_1\na,0.8,0.6\nb,0.5,\n", "pooled_mean", "has 2 parts with rates only"),
    ],
)
def test_what_a_record_cannot_say(text, attribute, said):
    with pytest.raises(otm.errors.InvalidParameter, match=said):
        getattr(parse_acceptance(text), attribute)


@pytest.mark.parametrize("text", ["hello", "{}", "[]", "1", "{}\n{}", "a,b\n1,2\n", "\x00"])
def test_text_without_a_word_of_drafts_is_told_the_forms(text):
    with pytest.raises(otm.errors.InvalidParameter, match="no word of them") as caught:
        parse_acceptance(text)
    for form in FORMS:
        assert form.name in str(caught.value)


def test_records_are_looked_for_to_a_depth():
    """64 objects around one are opened; what is deeper is not found, and no stack overflows."""
    around = lambda n: '{"a": ' * n + WITH_LAW["vLLM bench"] + "}" * n  # noqa: E731
    assert parse_acceptance(around(64)).steps == pytest.approx(10)
    with pytest.raises(otm.errors.InvalidParameter):
        parse_acceptance(around(65))


@pytest.mark.parametrize(
    "text",
    [
        VLLM_LOG + COUNTERS,
        VLLM_LOG + LLAMA_ONE_LINE,
        lines(response(payload()), META | {"a": 1}),
        COUNTERS + COUNTERS.replace("vllm:", "llamacpp:"),
    ],
)
def test_what_is_of_several_forms_is_refused(text):
    with pytest.raises(otm.errors.InvalidParameter, match=r"of 2|counters of one engine"):
        parse_acceptance(text)


def wrong(**changed):
    return json.dumps(response(payload(**changed)))


@pytest.mark.parametrize(
    "text",
    [
        COUNTERS.replace("8.0", "7.5"),
        COUNTERS.replace("8.0", "NaN"),
        COUNTERS.replace("8.0", "-8"),
        COUNTERS.replace('position="1"', 'position="2"'),
        COUNTERS.replace("8.0", "5.0"),
        COUNTERS.replace("1.4e1", "3.0"),
        COUNTERS.replace("vllm:", "other:"),
        wrong(num_spec_steps=6),
        wrong(num_accepted_draft_tokens=8),
        wrong(num_draft_tokens=6),
        wrong(acceptance_histogram=[1, 1, -3]),
        wrong(acceptance_histogram=[1, 1, "3"]),
        wrong(acceptance_histogram={"0": 1, "1": 1, "9999999": 3}),
        wrong(num_spec_steps="x"),
        wrong(num_spec_steps=True),
        wrong(**(DETAIL | {"per_step_drafted": [2] * 4})),
        wrong(**(DETAIL | {"per_step_drafted": [2, 2, 2, 2, 1]})),
        wrong(**(DETAIL | {"per_step_accepted": [1, 1, 1, 2, 2]})),
        wrong(**(DETAIL | {"per_step_accepted": [0.0, 1, 2, 2, 2]})),
        wrong(
            acceptance_histogram=[0, 0, 0],
            num_spec_steps=0,
            num_accepted_draft_tokens=0,
            num_draft_tokens=0,
        ),
        json.dumps(BENCH | {"spec_decode_per_position_acceptance_rates": [0.9, 0.8]}),
        json.dumps(BENCH | {"spec_decode_per_position_acceptance_rates": "0.8"}),
        # one rate is off by one rounding at most
        json.dumps(
            BENCH
            | {"spec_decode_accepted_tokens": 3}
            | {"spec_decode_per_position_acceptance_rates": [0.297]}
        ),
        json.dumps(BENCH | {"spec_decode_num_drafts": 0}),
        # so few are accepted that per cent and fractions cannot be told apart
        json.dumps(
            BENCH
            | {"spec_decode_num_drafts": 10_000, "spec_decode_accepted_tokens": 1}
            | {"spec_decode_per_position_acceptance_rates": [0.0001, 0.0]}
        ),
        json.dumps(BENCH | {"spec_decode_accepted_tokens": None}),
        json.dumps(
            {
                "spec_verify_ct": 5,
                "spec_accept_histogram": [1, 1],
                "spec_cap_lens_histogram": [2, 0],
            }
        ),
        json.dumps(
            {
                "spec_verify_ct": 5,
                "spec_accept_histogram": [1, 1],
                "spec_cap_lens_histogram": [0, 3],
            }
        ),
        json.dumps({"spec_verify_ct": 0}),
        json.dumps({"spec_verify_ct": 5}),
        json.dumps(iteration(1, 3, 2)),
        json.dumps({"specDecodingStats": {"numDraftTokens": 3}}),
        json.dumps({"accept_length": None, "request_throughput": 1, "mean_ttft_ms": 1}),
        json.dumps({"accept_length": 0.5, "request_throughput": 1, "mean_ttft_ms": 1}),
        json.dumps(
            {"average_acceptance_length": 2.0, "spec_verify_count": None, "output_tokens": 9}
        ),
        SPECULATORS.replace("0.75,0.75", "0.75,0.9"),
        SPECULATORS.replace("0.75,0.75", "75,0.75"),
        SPECULATORS.replace("4.0", "x"),
        SPECULATORS.replace("pos_1", "pos_2"),
        LLAMA_TOTALS.replace("#calls(b,g,a)", "#calls"),
        '{"spec_verify_ct": 1, "spec_verify_ct": 2}',
        '{"spec_verify_ct": 5, "spec_accept_histogram": [1, NaN]}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
    ids=lambda text: text[:60],
)
def test_damage_is_refused(text):
    with pytest.raises((otm.errors.InvalidParameter, otm.errors.InvalidDistribution)):
        _ = parse_acceptance(text).survival


def test_files(tmp_path):
    file = tmp_path / "record.txt"
    file.write_bytes(b"\xef\xbb\xbf" + VLLM_LOG.encode())
    assert read_acceptance(file).steps == pytest.approx(10)
    assert read_acceptance(str(file)).form == "vLLM log"
    file.write_bytes(b"\xff\xfe\x00")
    for path in (file, tmp_path, tmp_path / "absent", 3.5, None, b"x\x00"):
        with pytest.raises(otm.errors.InvalidParameter, match="path must name a file"):
            read_acceptance(path)


PRINTED = (
    json.dumps({"timings": {"predicted_n": 9, "predicted_ms": 5.0, "draft_n": 4}}),
    json.dumps({"completion_tokens": 9, "accepted_draft_tokens_count": 3}),
    "Drafts:  10\nDraft tokens: 20\nAccepted tokens:  14\n",
    "code pred= 25 draft= 20 acc= 14 rate=0.700 tok/s=31.3\n",
    "DFlash generation complete: 24 tokens, 3.1 tok/s, acceptance=58.3%, cycles=10\n",
    "[MTP Stats         ] Average toks/fwd: 1.70, Accepted/Total Draft tokens: 7/10, Acceptance "
    "rate: 70.00%, Accepted tokens distribution: {0: '30.00%', 1: '70.00%'}\n",
    "slot update_slots: id  3 | task 0 | accepted 1/2 draft tokens, new n_tokens = 661\n",
)


def test_every_form_is_found_by_its_own_marks():
    texts = [
        *WITH_LAW.values(),
        json.dumps(SPECFORGE),
        *(SGLANG_LOG[0], json.dumps(TRT_RESPONSE), "position,rate\n0,0.5\n"),
        "offered,accepted\n3,2\n",
        *PRINTED,
    ]
    documents = [records.document.Document(text) for text in texts]
    found = [[form for form in FORMS if form.is_form_of(one)] for one in documents]
    assert all(len(one) == 1 for one in found)
    assert {one[0].name for one in found} == {form.name for form in FORMS}


def test_nothing_is_unpickled_or_executed():
    harmful = r"\b(pickle|marshal|shelve|ctypes|subprocess|yaml)\b|\b(eval|exec)\("
    for module in Path(inspect.getfile(records)).parent.glob("*.py"):
        assert not re.search(harmful, Path(module).read_text(encoding="utf-8")), module


def test_a_record_has_a_step():
    with pytest.raises(otm.errors.InvalidParameter, match="at least one verification step"):
        AcceptanceRecord(form="x", unit="request", parts=(), convention="")


def test_every_form_names_its_source():
    modules = [
        thing
        for thing in vars(reader).values()
        if inspect.ismodule(thing) and thing.__name__.startswith("otm.engines.records.")
    ]
    named = {
        form.name
        for module in modules
        for form in vars(module).values()
        if isinstance(form, records.Form)
    }
    assert named == {form.name for form in (*FORMS, printed.MEAN)}
    for module in modules:
        told = " ".join((module.__doc__ or "").split())
        engine = not module.__name__.endswith(("positions_csv", ".steps"))
        assert ("Source of the form: github.com/" in told and " at " in told) == engine, module


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no endless file")
def test_a_file_without_end_is_refused():
    with pytest.raises(otm.errors.TooLarge, match="zero has more than"):
        read_acceptance("/dev/zero")
