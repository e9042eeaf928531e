"""Entry point of `python -m tff_re.run` and `tff-re`.

The commands are in `tff_re.cli`.
"""

import sys

from tff_re.cli.main import cli, main

__all__ = ["cli", "main"]

if __name__ == "__main__":
    sys.exit(main())
