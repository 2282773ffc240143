"""For images: fetch the pinned packages of the terminal's page, verify them, and leave them in the folder named.

python fetch_terminal_page.py /opt/valet/share/xterm
"""

import shutil
import sys
import tempfile
from pathlib import Path

from valet_local import npm, tools


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = tools.ensure_terminal_page(
            Path(folder, "tools"), Path(folder, "cache"), fetch=npm.fetch, progress=lambda *_: None
        )
        shutil.copytree(page, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
