"""What is audited: each piece of public code, its revision, and the shim that fits it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

Shim = Callable[[Path], Any]


@dataclasses.dataclass(frozen=True)
class Subject:
    """One audit of the page.

    Attributes:
        key: what the page and the command line call it.
        repository: OWNER/NAME, or OWNER/NAME@LABEL as in `PINS`.
        revision: 40 digits, or the tag of a release.
        code: file and function.
        kind: "token", "block", "batch" (of blocks, by samples), "tree" or "step".
        meant: "lossless" or "lossy", as its authors say.
        shim: makes the callable from the folder of the checkout.
        options: for the audit, see `run`.
    """

    key: str
    repository: str
    revision: str
    code: str
    kind: str
    meant: str
    shim: Shim
    options: dict[str, Any]


SUBJECTS: dict[str, Subject] = {}

PINS = {
    "huggingface/transformers": "v5.23.0",
    "vllm-project/vllm": "v0.6.6.post1",
    "vllm-project/vllm@v0.33.0": "v0.33.0",
    "vllm-project/vllm-ascend": "182b75ea84ff13ece27b57391331ef8935410aea",
    "SafeAILab/EAGLE": "cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b",
    "HArmonizedSS/HASS": "38922e43fec95f0bd2993f33aaa6ee82371741a5",
    "FasterDecoding/Medusa": "e2a5d20c048a9b0a4092e6933c34313687422518",
    "FasterDecoding/REST": "50a5fc197382ed8df5b3e946dad2f8337511b541",
    "hemingkx/Spec-Bench": "fd2c1cd7d2201ef71db4c5f4e455008f017967bf",
    "NJUNLP/MCSD": "8aadd6501a9e987ba5fca6cc8f9ad5949e480ec7",
    "Infini-AI-Lab/Sequoia": "0ff3ff71475ca148f2dfb7545e0de5caf5c67b39",
    "Infini-AI-Lab/TriForce": "164c8c0131cf49951eefdea89a3fbcccb8ca326b",
    "Jikai0Wang/OPT-Tree": "4f87f54e8543f9038d10aac32f286d7f14b7407b",
    "apple/ml-recurrent-drafter": "bd8586bb9bbfa761644c36f932a0cd1eb3f1cdf9",
    "deepseek-ai/DeepSpec": "afdfa7c9382a3341a3e6f17756dd816da79f132c",
    "tanishqkumar/ssd": "6ed3022256dd7661e0ad53356f1eccda6239340f",
    "pytorch-labs/gpt-fast": "e2cfa34145e7f14f8390c8ab727f8d7451b26fec",
    "smart-lty/ParallelSpeculativeDecoding": "5a6f3690118aabc101cc3e812f1d8d689c634fc3",
    "feifeibear/LLMSpeculativeSampling": "59a209d37b2e463459057a784f8bd31c1136a58b",
    "lucidrains/speculative-decoding": "72171ac91cd040ad6b67c186ac985e4f50a0c269",
    "romsto/Speculative-Decoding": "db7db67604359d0380c330c240c276ec1f85ba65",
    "jaymody/speculative-sampling": "03b4759da6e894bacdc2f396dc4fd88c913bf94d",
    "dust-tt/llama-ssp": "29bed13aeac33eb6f996e3b3ddeaf37340db0dc5",
    "eth-sri/language-model-arithmetic": "6779b40702d5214525a21e51c91d5042f873bd81",
    "flashinfer-ai/flashinfer": "fb28d7242b3506a2348265962041acc1fb56cca4",
    "ZhouYuxuanYX/Hierarchical-Speculative-Decoding": "b8575e2ad42bcf2b32d0c6f3481eb49099453f33",
    "shreyansh26/Speculative-Decoding": "76335be2f8f1a7bf25739310ae80435b83782b23",
    "sgl-project/sglang": "v0.5.23",
    "sgl-project/sglang@main": "b3939a5e3253b7f01b625076eff0037c7f72f182",
    "NVIDIA/TensorRT-LLM": "00be09f78ecf0691f2b8e15dea518d1d6468679e",
    "InternLM/lmdeploy": "1263d5cd889b7ad500e85b8eb20401327a4516ab",
    "ROCm/ATOM": "ffdf3bb5ddf8a15a64d521a2eeb3bc7438f9ac21",
    "vllm-project/tpu-inference": "b8692ff01fa191343836996c27a39dc95f008b88",
    "Lightning-AI/litgpt": "26857050fe3ff627cd714fe92f5838f51a3d5efa",
    "yuyijiong/speculative_pipeline_decoding": "186f366764b213f5157fa0d15bce9fb59c0182db",
    "Tencent/AngelSlim": "67394ce55f6b6cfae702575fbc3c7a05c13fdd74",
    "hao-ai-lab/JetSpec": "2c7b3fae75690dfe9a188a37d7fdfd43ee0e032f",
    "AMD-AGI/FLy": "6667ae8477d087732eb71d7bdaa0d1cb94462a60",
    "r-rishabh-j/batched_specdec": "dae877547d1e0cba198d562cee85837f5cf4d48e",
    "liranringel/ddtree": "c96427a185677bf4133ed865dd1626a5041aef9b",
    "sdivyanshu90/speculative-decoding-from-scratch": "69f0b29c8ba7e41e858800e054e33544e779e08a",
}
"""Revisions by repository; OWNER/NAME@LABEL is another one of a repository that is here twice."""


def subject(
    key: str, repository: str, code: str, kind: str, *, meant: str = "lossless", **options: Any
) -> Callable[[Shim], Shim]:
    """Enter a shim."""

    def enter(shim: Shim) -> Shim:
        SUBJECTS[key] = Subject(key, repository, PINS[repository], code, kind, meant, shim, options)
        return shim

    return enter
