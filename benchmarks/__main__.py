"""`python -m benchmarks [NAME…]`: runs benchmarks and writes their tables to runs/benchmarks."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from tff_re.runtime import install_signal_handlers
from tff_re.runtime.quiet import be_quiet

NAMES = (
    *("rounds", "encoder", "memory", "documents", "document_memory", "selection", "runtimes", "sockets", "serving"),
    *("adapters", "privacy", "robust", "sites", "peers"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(NAMES)} [all]")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks"))
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds of each contender [9]")
    parser.add_argument(
        "--encoder",
        type=Path,
        help="serving: folder of an encoder [random weights]; adapters, privacy: of English [left out]",
    )
    parser.add_argument("--chinese-encoder", type=Path, help="adapters: folder of an encoder of Chinese")
    parser.add_argument("--f1-rounds", type=int, metavar="N", help="adapters: rounds before F1 is taken [--rounds]")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"there is no benchmark {sorted(unknown)[0]!r}; there are {', '.join(NAMES)}")
    be_quiet()
    install_signal_handlers()  # what a benchmark started ends with it
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or NAMES:
        given = {"encoder": arguments.encoder} if name in ("serving", "privacy") else {}
        if name == "adapters":
            named = {"ChemProt": arguments.encoder, "MIE windows": arguments.chinese_encoder}
            given = {"encoders": {problem: folder for problem, folder in named.items() if folder is not None}}
            given["f1_rounds"] = arguments.f1_rounds
            if not given["encoders"]:
                print("adapters: left out; it needs --encoder or --chinese-encoder, and TFF_RE_DATA")
                continue
        markdown = importlib.import_module(f"benchmarks.{name}").run(arguments.rounds, arguments.out, **given)
        (arguments.out / f"{name}.md").write_text(markdown, "utf-8")
        print(markdown)


if __name__ == "__main__":
    main()
