"""`python -m benchmarks [NAME…]`: runs benchmarks and writes their tables to runs/benchmarks."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from tff_re.runtime import install_signal_handlers
from tff_re.runtime.quiet import be_quiet

NAMES = (
    *("rounds", "encoder", "memory", "documents", "document_memory", "selection", "runtimes", "sockets", "serving"),
    *("adapters", "privacy", "robust", "sites", "masks", "peers", "tagging", "extraction", "suites", "schedule"),
    "clients",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benchmarks to run: {', '.join(NAMES)} [all]")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmarks"))
    parser.add_argument("--rounds", type=int, default=9, help="rounds to measure for each contender [9]")
    parser.add_argument(
        "--encoder",
        type=Path,
        help="folder of an English encoder; serving: [random weights]; adapters, privacy: [skipped]",
    )
    parser.add_argument("--chinese-encoder", type=Path, help="adapters: folder of a Chinese encoder")
    parser.add_argument(
        "--f1-rounds", type=int, metavar="N", help="adapters: train N rounds before measuring F1 [--rounds]"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {sorted(unknown)[0]!r}; choose from {', '.join(NAMES)}")
    be_quiet()
    install_signal_handlers()  # so that processes started by a benchmark end with it
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or NAMES:
        options = {"encoder": arguments.encoder} if name in ("serving", "privacy") else {}
        if name == "adapters":
            encoders = {"ChemProt": arguments.encoder, "MIE windows": arguments.chinese_encoder}
            options = {"encoders": {problem: folder for problem, folder in encoders.items() if folder is not None}}
            options["f1_rounds"] = arguments.f1_rounds
            if not options["encoders"]:
                print("adapters: skipped; it needs --encoder or --chinese-encoder, and TFF_RE_DATA")
                continue
        markdown = importlib.import_module(f"benchmarks.{name}").run(arguments.rounds, arguments.out, **options)
        (arguments.out / f"{name}.md").write_text(markdown, "utf-8")
        print(markdown)


if __name__ == "__main__":
    main()
