"""For images: fetch the pinned agent, verify it, and leave it under the name given.

python fetch_opencode.py /opt/valet/bin/opencode
"""

import shutil
import sys
import tempfile
from pathlib import Path

from valet_local import npm, tools


def main(target: Path) -> None:
    package = tools.opencode_package()
    if package == "opencode-linux-x64":
        # an image is built on one machine and runs on another, whose processor may lack AVX2
        package = "opencode-linux-x64-baseline"
    with tempfile.TemporaryDirectory() as folder:
        fetched = tools.ensure_opencode(
            Path(folder, "tools"), Path(folder, "cache"), fetch=npm.fetch, progress=lambda *_: None, package=package
        )
        shutil.copyfile(fetched, target)
    target.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
