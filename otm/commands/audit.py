"""``otm audit``: is a verifier lossless, and if not, by how much?

The callable is looked up as ``module:name`` with the working directory on the path, or as
``FILE.py:name``: a function ``verify(draft, target, drafts, uniforms)`` of one token or of a block,
anything else that `otm.audit.battery` takes, or one of the library's verifiers. The report goes to
standard output in Markdown, the verdict as soon as it is known and a minimal counterexample after
it; what the callable prints is kept out of it. To audit a file is to execute it.

Exit status: 0 lossless (sampled and log: no difference found; two runs: identical, or rounding);
1 not lossless, not exactly so, or a fault; 2 undecided, no verdict, the callable raised, or the
call could not be carried out; 3 nothing found where only a large deviation would have been; 130
interrupted, with what was found so far.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from fractions import Fraction
from typing import Any

from otm._machine.progress import INTERRUPTED, clock
from otm.errors import OtmError

MODES = ("auto", "exact", "sequence", "sampled", "step", "tree", "generate", "logits")
"""What --mode may be."""

LAWS = ("greedy", "iid", "product", "threshold-race", "top-k", "without-replacement")
ORDERS = ("llama.cpp", "transformers", "vllm")
NOISE = ("position", "step", "fresh")
SIBLINGS = ("with", "without", "likeliest")
TEMPLATES = ("generate", "logits", "step", "tree", "triton", "vllm")
SECONDS, SHRINKING = 18.0, 8.0
"""What the library has under these names: written down, so that --help need not load it."""

DETECT = 0.02
"""Total variation that samples alone are planned to find unless another is given."""


def run(options: argparse.Namespace) -> int:
    """Carry out what the options ask for and return the exit status."""
    try:
        # what audits is loaded when it is needed: --help answers at once
        with clock("loading"):
            from otm.commands import audit_run  # noqa: PLC0415

        return audit_run.run(options)
    except KeyboardInterrupt:
        print("otm audit: interrupted before anything was found", file=sys.stderr)
        return INTERRUPTED
    except OtmError as error:
        print(f"otm audit: {error}", file=sys.stderr)
    except Exception:
        # a crash must not leave with Python's own status 1, which says "not lossless"
        traceback.print_exc()
    return 2


def register(commands: Any) -> None:
    """Add the command to a parser's commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "audit",
        help="is a verifier lossless, and if not, by how much?",
        epilog="A file that is audited is executed. Example: otm audit kernels.py:verify. Exit "
        "status: 0 lossless (samples, log: no difference found), 1 not lossless or not exactly, 2 "
        "undecided, no verdict or the callable raised, 3 too little power, 130 interrupted.",
    )
    parser.add_argument(
        "callable",
        metavar="module:function",
        nargs="?",
        help="verify(draft, target, drafts, uniforms) of a token (V,), (V,), (k,), (n,) or of a "
        "block (γ, V), (γ+1, V), (γ,), (n,); the working directory is searched. FILE.py:function "
        "is taken, too; the function is candidate where it is left out",
    )
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="auto",
        help="auto (default): what the callable is is found out; integrated where it can be, "
        "sampled beside that. exact (one token), sequence (a block), sampled: that audit only. "
        "step, tree, generate, logits: what the callable is",
    )
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="audit a JSONL log (format: otm.audit.token_log), or an engine's record of "
        "acceptance, instead of a callable",
    )
    parser.add_argument(
        "--expected",
        type=probabilities,
        metavar="A,B",
        help="of a record of acceptance: how often a lossless scheme accepts at least 1, 2, … "
        "drafts at most",
    )
    parser.add_argument(
        "--same-text",
        nargs=2,
        metavar=("PLAIN", "SPECULATIVE"),
        help="say whether two runs of the same prompts, greedy, write the same up to rounding "
        "(forms: otm.audit.text_log), instead of auditing a callable",
    )
    parser.add_argument(
        "--same-seed",
        action="store_true",
        help="same-text: sampled with the noise of one seed, which the logged values contain",
    )
    parser.add_argument(
        "--template",
        choices=TEMPLATES,
        help="print a file to start from, for a callable of this kind, and audit nothing",
    )
    parser.add_argument(
        "--draft",
        type=tables,
        metavar="P",
        help="0.75,0.25 or 3/4,1/4; with --target, instead of the standard instances: the same "
        "law everywhere, or one for each last token with semicolons between",
    )
    parser.add_argument("--target", type=tables, metavar="Q", help="as --draft")
    parser.add_argument(
        "--law",
        choices=LAWS,
        help="how the drafts are drawn (default: iid; for --log: unknown)",
    )
    parser.add_argument(
        "--drafts",
        type=int,
        nargs="+",
        metavar="K",
        help="numbers of drafts, or lengths of blocks (default: what docs/audit.md says)",
    )
    parser.add_argument(
        "--uniforms", metavar="A,B", help="A·k + B uniforms a call (default: k + 1, or found out)"
    )
    parser.add_argument(
        "--batched",
        action="store_true",
        help="the callable is verify(draft, target, drafts (m, k), rng), which is found out, too",
    )
    parser.add_argument(
        "--siblings",
        choices=SIBLINGS,
        help="tree: drawn with (default) or without replacement, or the likeliest",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        nargs="+",
        metavar="T",
        help="logits: what it is called with (default: 1 0.6 0 0.3 1.5); 0 is greedy",
    )
    parser.add_argument("--top-k", type=int, metavar="K", help="logits: what the callable applies")
    parser.add_argument("--top-p", type=float, metavar="P", help="logits: as --top-k")
    parser.add_argument("--min-p", type=float, metavar="P", help="logits: as --top-k")
    parser.add_argument(
        "--order", choices=ORDERS, help="logits: in which order (default: transformers)"
    )
    parser.add_argument(
        "--noise",
        choices=NOISE,
        help="a block: that a text of several steps is lossless, too, with draft noise keyed by "
        "the position, by it and the beginning of the step, or fresh (default: by position, "
        "reported beside the verdict)",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        help="exact, sequence: largest total variation that counts as rounding; same-text: "
        "largest change of log-odds (default: learnt)",
    )
    parser.add_argument(
        "--detect",
        type=float,
        help="total variation that samples are not to miss (default: sampled, log "
        f"{DETECT}; auto what the time allows)",
    )
    parser.add_argument(
        "--false-alarm",
        type=float,
        default=1e-9,
        help="sampled, log: probability (default: %(default)s)",
    )
    parser.add_argument(
        "--missed",
        type=float,
        default=1e-3,
        help="sampled, log: probability (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="sampled: of the drafts and uniforms (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help="auto: CPU seconds for the audits, or ten times as many of waiting (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--shrink",
        type=float,
        default=SHRINKING,
        help="seconds for a minimal counterexample (default: %(default)s)",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write the result for scripts as well; - for standard output instead",
    )


def tables(text: str) -> list[list[float]]:
    """Read distributions with semicolons between."""
    return [probabilities(row) for row in text.split(";")]


def probabilities(text: str) -> list[float]:
    """Read a distribution in decimals or fractions; argparse reports what does not convert."""
    try:
        parts = [part.strip() for part in text.split(",")]
        return [float(Fraction(part)) if "/" in part else float(part) for part in parts]
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise argparse.ArgumentTypeError(
            f"probabilities are decimals or fractions with commas between; got {text!r}"
        ) from error
