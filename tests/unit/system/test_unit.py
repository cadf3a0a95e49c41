"""The systemd unit and its drop-ins: the fences stand, and systemd itself takes every line."""

from __future__ import annotations

import ipaddress
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SYSTEMD = Path(__file__).parents[3] / "config" / "systemd"
DROP_INS = sorted((SYSTEMD / "drop-ins").glob("*.conf"))
ANALYZE = shutil.which("systemd-analyze")


def settings(file: Path) -> dict[str, list[str]]:
    """Every value of every key, in order."""
    found: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        if match := re.fullmatch(r"([A-Za-z]+)=(.*)", line):
            found.setdefault(match[1], []).append(match[2])
    return found


UNIT = settings(SYSTEMD / "kblockd.service")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("MemoryMax", "2G"),
        ("MemorySwapMax", "0"),
        ("TasksMax", "256"),
        ("StartLimitIntervalSec", "600"),
        ("StartLimitBurst", "10"),
        ("OOMPolicy", "continue"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("CapabilityBoundingSet", ""),
        ("UMask", "0077"),
        ("RuntimeDirectoryMode", "0700"),
        ("StateDirectoryMode", "0700"),
    ],
)
def test_the_fences_stand(key: str, value: str) -> None:
    assert UNIT[key] == [value]


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("127.0.0.1", True),
        ("127.0.0.53", True),
        ("::1", True),
        ("93.184.216.34", True),
        ("2606:4700::1111", True),
        ("169.254.169.254", False),
        ("fe80::1", False),
        ("fd00:ec2::254", False),
        ("10.0.0.1", False),
        ("172.31.255.255", False),
        ("192.168.1.1", False),
        ("100.100.100.200", False),
        ("192.0.0.192", False),
        ("224.0.0.1", False),
        ("0.0.0.0", False),
    ],
)
def test_the_daemon_reaches_the_internet_and_this_machine_and_no_private_address(address: str, reached: bool) -> None:
    """An address is let through if it is allowed, or not denied (systemd.resource-control)."""
    names = {
        "localhost": ["127.0.0.0/8", "::1/128"],
        "link-local": ["169.254.0.0/16", "fe80::/64"],
        "multicast": ["224.0.0.0/4", "ff00::/8"],
    }

    def among(key: str) -> bool:
        written = [word for line in UNIT[key] for word in line.split()]
        networks = [ipaddress.ip_network(one) for word in written for one in names.get(word, [word])]
        found = ipaddress.ip_address(address)
        return any(found.version == network.version and found in network for network in networks)

    assert (among("IPAddressAllow") or not among("IPAddressDeny")) is reached


def test_the_groups_of_the_callers_are_the_ones_that_the_readme_makes() -> None:
    """And a drop-in is named there, or nobody finds it."""
    readme = (SYSTEMD.parent / "README.md").read_text()
    (groups,) = settings(SYSTEMD / "drop-ins" / "callers.conf")["SupplementaryGroups"]
    assert f"for group in {groups}; do groupadd --system" in readme
    assert [file.name for file in DROP_INS if f"drop-ins/{file.name}" not in readme] == []


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is missing")
@pytest.mark.parametrize("drop_in", [None, *DROP_INS], ids=lambda file: file.name if file else "the unit alone")
def test_systemd_takes_every_line(tmp_path: Path, drop_in: Path | None) -> None:
    """Of a copy with a program that is there; a line that is unknown or malformed would be reported."""
    unit = tmp_path / "kblockd.service"
    text = (SYSTEMD / "kblockd.service").read_text()
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text))
    if drop_in is not None:
        folder = tmp_path / "kblockd.service.d"
        folder.mkdir()
        shutil.copy(drop_in, folder)
    assert _verified(unit) == ""
    with (unit if drop_in is None else folder / drop_in.name).open("a") as file:
        file.write("[Service]\nMemoryMax=lots\n")
    assert "'lots'" in _verified(unit)


def _verified(unit: Path) -> str:
    command = [str(ANALYZE), "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if "kblockd.service" in line)
