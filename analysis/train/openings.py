"""Openings of many kinds, for a target to go on writing after: no text need be at hand.

An opening is a frame around a word of the target's own vocabulary, some ten thousand for each
frame. What follows is the target's: code, lists, prose or, after its chat template, an answer.
"""

from __future__ import annotations

from typing import Any

from .corpus import Corpus, Document, held_out

_SHORTEST_WORD = 4

_FRAMES = {
    "code": (
        "def {}(",
        "class {}:\n",
        "# {}\nimport ",
        "```python\n# {}\n",
        "```javascript\nfunction {}(",
        'def main():\n    """{}"""\n',
    ),
    "lists": (
        "{}:\n\n1.",
        "Ten facts about {}:\n\n1.",
        "What to bring for {}:\n\n- ",
        "Steps to {}:\n\n1.",
        "| {} | ",
        "* {}\n* ",
    ),
    "prose": (
        "The {}",
        "A story about {}.\n\n",
        "In {},",
        "{} is",
        "She looked at the {}",
        "Every {} that",
        "It was {} when",
        "A history of {}\n\n",
    ),
}

_QUESTIONS = (
    "What is {}?",
    "How does {} work?",
    "Tell me about {}.",
    "Write a short text about {}.",
    "Why is {} important?",
    "Write a Python function for {}.",
    "Give me a list of ideas for {}.",
    "{}",
)


def with_openings(corpus: Corpus, tokenizer: Any) -> Corpus:
    """Return a corpus with openings added for every word in the tokenizer's vocabulary.

    A word lies on one side of the split with all its openings. Questions are put into the
    tokenizer's chat template, and are left out where there is none.
    """
    words = sorted(
        word.strip()
        for word in map(tokenizer.decode, ([number] for number in range(len(tokenizer))))
        if word.startswith(" ") and word[1:].isalpha() and word.islower()
        if len(word) > _SHORTEST_WORD
    )
    kinds = dict(_FRAMES)
    if tokenizer.chat_template:
        kinds["questions"] = tuple(_asked(frame, tokenizer) for frame in _QUESTIONS)
    documents = [
        Document(f"{kind}:{word}", frame.replace("{}", word), side, kind)
        for kind, frames in kinds.items()
        for word in words
        for side in (held_out(word),)
        for frame in frames
    ]
    provenance = corpus.provenance | {"openings": len(documents)}
    return Corpus((*corpus.documents, *documents), provenance)


def _asked(question: str, tokenizer: Any) -> str:
    said = [{"role": "user", "content": question}]
    return str(tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True))
