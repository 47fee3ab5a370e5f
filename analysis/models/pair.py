"""Draft/target pairs: loading, and next-token logits of both models.

Weights come from strangers: only safetensors are read, and code shipped with a model runs only if
the user asks for it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from ..errors import AnalysisError
from ..files import has_content
from .distilled import is_distilled, load_distilled
from .names import SIDES, model_places

_PATIENCE = 4.0
"""Seconds that the hub has to answer."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """Two causal language models, mostly over one tokenizer.

    Attributes:
        draft, target: models in evaluation mode on `device`.
        tokenizer: the target's, and mostly shared.
        num_tokens: V, the tokens that both models score; embedding rows beyond it (padding) are cut
            off in both.
        notes: what a reader of the results should know, such as rows that were cut.
        draft_tokenizer: the draft's own, if it is another; its logits are of its own tokens then.
        chat: whether prompts are messages of a user.
    """

    draft: Any
    target: Any
    tokenizer: Any
    device: str
    num_tokens: int
    notes: tuple[str, ...] = ()
    draft_tokenizer: Any = None
    chat: bool = False

    @property
    def places(self) -> dict[str, str]:
        """Places of the two models by side: folders or hub names."""
        models = zip(SIDES, (self.draft, self.target), strict=True)
        return {side: str(model.config._name_or_path) for side, model in models}

    @property
    def device_name(self) -> str:
        """The kind of GPU, or "cpu"."""
        return (
            torch.cuda.get_device_name(self.device)
            if torch.device(self.device).type == "cuda"
            else self.device
        )

    def encode(self, prompt: str) -> list[int]:
        """Return the prompt's tokens, or raise `AnalysisError` on an empty prompt."""
        tokens = list(self.tokenizer(prompt)["input_ids"]) if prompt else []
        if not tokens or not prompt.strip():
            raise AnalysisError(
                f"The prompt must contain at least one token; got {prompt!r}. Pass some text."
            )
        return tokens

    def encode_prompt(self, prompt: str) -> list[int]:
        """Return a prompt's tokens, in the chat template if prompts are messages of a user."""
        return self.encode_chat(prompt) if self.chat else self.encode(prompt)

    def encode_chat(self, prompt: str) -> list[int]:
        """Return a user's message in the tokenizer's chat template, up to where the answer begins.

        Raises:
            AnalysisError: on an empty prompt, or a template that takes none.
        """
        self.encode(prompt)
        try:
            text = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False
            )
            # The template writes the special tokens itself.
            tokens: list[int] = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        except Exception as error:  # templates are programs, and raise whatever they like
            raise AnalysisError(
                f"The chat template does not take a user's message: {error!s:.200}. Leave it out."
            ) from error
        return tokens

    @torch.inference_mode()
    def next_logits(self, context: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return draft and target logits `(V,)` after a context, float32 on the pair's device."""
        return self.side_logits(0, context), self.side_logits(1, context)

    @torch.inference_mode()
    def side_logits(self, side: int, context: Sequence[int]) -> torch.Tensor:
        """Return the draft's (side 0) or the target's (side 1) logits `(V,)` after a context."""
        model = (self.draft, self.target)[side]
        row = torch.tensor([list(context)], device=self.device)
        logits: torch.Tensor = model(row, use_cache=False).logits
        return logits[0, -1, : self.num_tokens].float()

    @torch.inference_mode()
    def logits(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return draft and target logits `(rows, length, V)` at every position of rows."""
        rows = rows.to(self.device)
        draft, target = (
            model(rows, use_cache=False).logits[..., : self.num_tokens].float()
            for model in (self.draft, self.target)
        )
        return draft, target


def load_pair(
    *,
    draft: str | None = None,
    target: str | None = None,
    device: str = "auto",
    trust_remote_code: bool = False,
    dtype: torch.dtype | str = torch.float32,
    device_map: str | None = None,
    two_tokenizers: bool = False,
    revisions: Sequence[str | None] = (None, None),
    chat: bool = False,
) -> Pair:
    """Load two causal language models; the shipped pair by default.

    Args:
        draft, target: hub names, local folders in Hugging Face format, or short names of public
            models, whose own draft is the default beside them.
        device: "cpu", "cuda", "cuda:1", ... or "auto" (CUDA where there is one).
        trust_remote_code: run Python files that come with the models. Off unless asked.
        dtype: floating type of the weights; "auto" for that of each model's files.
        device_map: how accelerate spreads each model over several devices ("auto", "balanced",
            ...), instead of `device`. Inputs go to the device of the target's embedding, and
            accelerate carries them on and the logits back.
        two_tokenizers: let the draft have a tokenizer of its own.
        revisions: of the draft and of the target on the hub: branches, tags or commits.
        chat: whether prompts are messages of a user.

    Raises:
        AnalysisError: if a model is missing or has no safetensors weights, needs remote code, the
            tokenizers differ, the device does not exist, or a device map is given without
            accelerate.
    """
    place = choose_device(device)
    if device_map is not None and importlib.util.find_spec("accelerate") is None:
        raise AnalysisError(
            "A device map needs the accelerate library, which is not installed. Install it: pip "
            "install accelerate."
        )
    spread = {} if device_map is None else {"device_map": device_map}
    # two small files load at once; errors should stand alone on the screen
    logging.disable_progress_bar()
    names = list(model_places(draft, target).values())
    borrows = is_distilled(Path(names[0]))
    own = names[1:] if borrows else names  # a distilled draft has its target's tokenizer
    sides = SIDES[-len(own) :]
    for side, name in zip(sides, own, strict=True):
        _check_folder(side, name)
    at = [{"revision": one} if one else {} for one in revisions[-len(own) :]]
    tokenizers = [
        _load(AutoTokenizer, name, f"{side}'s tokenizer", trust_remote_code, **one)
        for side, name, one in zip(sides, own, at, strict=True)
    ]
    if chat and not getattr(tokenizers[-1], "chat_template", None):
        raise AnalysisError(
            "The tokenizer must have a chat template; it has none. Leave --chat-template out."
        )
    other = tokenizers[0].get_vocab() != tokenizers[-1].get_vocab()
    if other and not two_tokenizers:
        raise _two_tokenizers(tokenizers, names)
    models = [
        _load(
            AutoModelForCausalLM,
            name,
            f"{side} model",
            trust_remote_code,
            use_safetensors=True,
            dtype=dtype,
            **spread,
            **one,
        ).eval()
        for side, name, one in zip(sides, own, at, strict=True)
    ]
    if borrows:
        models.insert(0, load_distilled(Path(names[0]), models[0]))
    if device_map is None:
        models = [model.to(place) for model in models]
    else:
        place = str(models[1].get_input_embeddings().weight.device)
    heads = [model.get_output_embeddings() for model in models]
    sizes = [int(getattr(head, "num_tokens", head.weight.shape[0])) for head in heads]
    num_tokens = sizes[1] if other else min(sizes)
    known = len(tokenizers[-1])
    if num_tokens < known:
        raise AnalysisError(
            f"Both models must score all {known} tokens of the tokenizer; they score {sizes[0]} "
            f"(draft) and {sizes[1]} (target). "
            "Choose models with complete output layers."
        )
    notes: tuple[str, ...] = ()
    if other:
        notes = (
            "the draft has another tokenizer and is asked in its own; it drafts what both spell "
            "alike",
        )
    elif sizes[0] != sizes[1]:
        notes = (
            f"output rows {num_tokens}..{max(sizes) - 1} exist in one model only (padding) and "
            "were cut off before softmax",
        )
    return Pair(
        draft=models[0],
        target=models[1],
        tokenizer=tokenizers[-1],
        device=place,
        num_tokens=num_tokens,
        notes=notes,
        draft_tokenizer=tokenizers[0] if other else None,
        chat=chat,
    )


def end_of_text(pair: Pair) -> int | None:
    """Return the tokenizer's end-of-sequence token, or None unless both models score this token."""
    token: Any = pair.tokenizer.eos_token_id
    return int(token) if token is not None and int(token) < pair.num_tokens else None


def load_target(
    target: str | None, *, device: str = "auto", dtype: torch.dtype = torch.float32
) -> tuple[Any, Any]:
    """Load a target and the tokenizer, without a draft; arguments and errors as in `load_pair`."""
    place = choose_device(device)
    name, tokenizer = load_tokenizer(target)
    model = _load(
        AutoModelForCausalLM,
        name,
        "target model",
        trust_remote_code=False,
        use_safetensors=True,
        dtype=dtype,
    )
    return model.eval().to(place), tokenizer


def load_tokenizer(target: str | None) -> tuple[str, Any]:
    """Return the place and the tokenizer of a target; raises as `load_pair`.

    A missing model is found quickly in this way.
    """
    logging.disable_progress_bar()
    name = model_places(None, target)["target"]
    _check_folder("target", name)
    return name, _load(AutoTokenizer, name, "target's tokenizer", trust_remote_code=False)


def choose_device(name: str) -> str:
    """Return the device of a name, or raise `AnalysisError` where this machine lacks the device."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError as error:
        raise AnalysisError(
            f"device must be 'auto', 'cpu' or 'cuda'; got {name!r}. Choose one."
        ) from error
    if kind not in ("cpu", "cuda"):  # what is computed here needs float64, and numbers
        raise AnalysisError(f"device must be 'auto', 'cpu' or 'cuda'; got {name!r}. Choose one.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise AnalysisError(
            f"device {name!r} needs a CUDA GPU; torch {torch.__version__} sees none here. Use "
            "--device cpu."
        )
    return name


def _check_folder(side: str, name: str) -> None:
    """Raise `AnalysisError` on a path without a model, which the hub takes for a misspelt name."""
    place = Path(name)
    if not place.is_dir():
        if place.is_file():
            raise AnalysisError(
                f"The {side} model {name} is a file; pass a folder in Hugging Face format."
            )
        # Hub names are NAME or OWNER/NAME.
        if (
            place.is_absolute()
            or name.startswith((".", "~"))
            or name.rstrip("/").count("/") > 1
            or name.endswith("/")
        ):
            raise AnalysisError(f"The {side} model {name} does not exist. Check the path.")
        return
    for pattern in ("*.json", "*.safetensors", "*.model"):
        if odd := [path.name for path in place.glob(pattern) if not has_content(path)]:
            raise AnalysisError(
                f"The {side} model {name} has a file {odd[0]!r} that is empty or no regular file. "
                "Copy it again."
            )
    missing = [] if (place / "config.json").is_file() else ["config.json"]
    # Some tokenizers come as vocabularies of other names, from which the library makes one.
    if not any(
        any(place.glob(pattern)) for pattern in ("tokenizer*", "vocab*", "*.model", "*.tiktoken")
    ):
        missing.append("tokenizer.json")
    if missing:
        raise AnalysisError(
            f"The {side} model {name} has no {' and no '.join(missing)}; pass a folder in Hugging "
            "Face format."
        )


def _load(factory: Any, name: str, what: str, trust_remote_code: bool, **options: Any) -> Any:
    # what was downloaded before is there all the same
    options["local_files_only"] = not _answers(name)
    if not trust_remote_code:
        _refuse_remote_code(
            name,
            local_files_only=options["local_files_only"],
            revision=options.get("revision", "main"),
        )
    try:
        loaded = factory.from_pretrained(name, trust_remote_code=trust_remote_code, **options)
        if factory is AutoTokenizer:
            loaded("a")  # some settings that are damaged break the first text only
        return loaded
    except MemoryError:
        raise
    except Exception as error:  # the library raises whatever a damaged file makes of its code
        reason = f"{error!s:.300}".splitlines()[0] if str(error) else type(error).__name__
        missing = "" if Path(name).is_dir() else f"no folder {name!r} is here, and as a hub name "
        remedy = (
            "Install the package that its weights are quantised with."
            if isinstance(error, ImportError)
            else "Check the name, the network, or convert the weights to safetensors."
        )
        raise AnalysisError(
            f"The {what} must be a local folder in Hugging Face format with safetensors weights, "
            f"or a hub name; {missing}{name!r} could not be loaded: "
            f"{reason.rstrip('.')}. {remedy}"
        ) from error


@functools.cache
def _answers(name: str) -> bool:
    """Return True if the hub answers, or the name is a local folder.

    Loading asks the hub many times, each with retries that take half a minute; this asks once and
    waits some seconds.
    """
    if Path(name).is_dir():
        return True
    try:
        HfApi().model_info(name, timeout=_PATIENCE)
    except (HfHubHTTPError, ValueError):
        return True  # it answered, or the name is none: the loader says what is wrong
    except Exception:  # whichever library carries the request has errors of its own
        return False
    return True


def _refuse_remote_code(name: str, *, local_files_only: bool, revision: str) -> None:
    """Refuse a model that needs remote code, before the library asks on a terminal."""
    try:
        config = AutoConfig.from_pretrained(
            name,
            trust_remote_code=False,
            local_files_only=local_files_only,
            revision=revision,
        )
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise AnalysisError(
                f"Code that comes with a model is not executed by default; {name!r} needs its own. "
                "Read it first, then pass "
                "--trust-remote-code."
            ) from error
        return  # the loader itself reports what is missing
    if getattr(config, "auto_map", None) and type(config).__module__.startswith(
        "transformers_modules"
    ):
        raise AnalysisError(
            f"{name!r} loaded code of its own; pass --trust-remote-code if that is meant."
        )


def _two_tokenizers(tokenizers: Sequence[Any], names: Sequence[str]) -> AnalysisError:
    """Return the error that names the differences between two tokenizers."""
    left, right = (tokenizer.get_vocab() for tokenizer in tokenizers)
    differing = sorted(
        token for token in left.keys() | right.keys() if left.get(token) != right.get(token)
    )
    example = differing[0]
    return AnalysisError(
        f"Draft and target must share one tokenizer: acceptance compares token ids. {names[0]} has "
        f"{len(left)} tokens, "
        f"{names[1]} has {len(right)}, and {len(differing)} differ (for example {example!r:.80}: "
        f"{left.get(example)} against "
        f"{right.get(example)}). Choose two models of one family, or ask `rules` or "
        "`advise`, which take any two."
    )
