"""Unix users without an entry in any user database: a uid, a gid and further groups, in processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

SETPRIV = shutil.which("setpriv")
ENV = shutil.which("env")
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_AGAIN = "import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', 'import kblockd.client'], check=True)"


@dataclass(frozen=True)
class User:
    """``groups`` are supplementary ones."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    def command(self, *arguments: str) -> list[str]:
        """The same command as this user. By way of ``env``: the first program is still looked up with root's rights."""
        groups = f"--groups={','.join(map(str, self.groups))}" if self.groups else "--clear-groups"
        ids = (f"--reuid={self.uid}", f"--regid={self.gid}")
        return [str(SETPRIV), *ids, groups, "--no-new-privs", "--", str(ENV), *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Until it has ended."""
        command = self.command(*arguments)
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/")


def interpreter(folder: Path, user: User) -> tuple[Path | None, str]:
    """A Python with this checkout that ``user`` may run, in ``folder``; or why there is none.

    The tests' own one may lie in root's home. What stands here instead is a virtual environment of another Python of
    the same version that only points at the packages of this one.
    """
    if os.geteuid() != 0:
        return None, "only root can become other users"
    if SETPRIV is None or ENV is None:
        return None, "setpriv (util-linux) is missing"
    why = "there is no Python for it"
    for number, base in enumerate((Path(sys.executable).resolve(), *map(Path, ("/usr/bin", "/usr/local/bin")))):
        program = base if base.is_file() else base / _VERSION
        if not program.exists():
            continue
        made = folder / str(number)
        subprocess.run([program, "-m", "venv", "--without-pip", made], capture_output=True, timeout=120, check=False)
        packages = made / "lib" / _VERSION / "site-packages"
        if not packages.is_dir():
            continue
        (packages / "checkout.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        done = user.run(str(made / "bin" / "python"), "-I", "-c", _AGAIN)
        if done.returncode == 0:
            return made / "bin" / "python", ""
        why = done.stderr[-300:]
    return None, f"another user cannot run this checkout: {why}"
