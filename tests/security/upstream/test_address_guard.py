"""Which addresses are connected to, with real sockets and a resolver that lies."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
import threading
import time
from collections.abc import Sequence

import httpx2
import pytest

from kblockd.upstream import special_addresses
from kblockd.upstream.address_guard import AddressGuard, AddressRefused, is_global_unicast, normalised
from kblockd.upstream.exchange import Guard, HttpOrigin
from tests.unit.upstream import make_special_addresses
from tests.upstreams.misbehaving import MisbehavingServer
from tests.upstreams.rest_app import RestApp

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)

REFUSED = [
    "127.0.0.1",
    "127.8.8.8",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a00:1::",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "192.0.0.8",
    "192.88.99.1",
    "fd20:ce::254",
    "100::1",
    "100:0:0:1::1",
    "2001::1",
    "2001:2::1",
    "2001:10::1",
    "3fff::1",
    "5f00::1",
    "4000::1",
    "64:ff9b:1::808:808",
    "64:ff9b::808:808",
    "2002:808:808::",
    "::8.8.8.8",
    "ff0e::1",
]


@pytest.mark.parametrize("text", REFUSED)
def test_r626_only_global_unicast_by_default(text: str) -> None:
    """R626, R076: private, local, shared, reserved, mapped and tunnelled addresses are not."""
    assert not is_global_unicast(normalised(text))


@pytest.mark.parametrize(
    "text",
    ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "192.0.0.9", "192.31.196.1", "2001:20::1"],
)
def test_global_unicast_is_allowed(text: str) -> None:
    """What the Internet routes."""
    assert is_global_unicast(normalised(text))


def _inside(block: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    network = ipaddress.ip_network(block)
    return [network[0], network[-1], network[network.num_addresses // 2]]


def test_the_table_is_what_the_registries_say() -> None:
    """Renewing a registry renews the table, and nobody edits it by hand."""
    assert make_special_addresses.OUT.read_text() == make_special_addresses.text()


@pytest.mark.parametrize("row", [*special_addresses.IPV4, *special_addresses.IPV6], ids=lambda row: row[0])
def test_no_block_of_the_registries_is_reached_unless_it_is_globally_reachable(row: tuple[str, str, bool]) -> None:
    """Whatever carries an IPv4 address is refused although IANA calls one of the carriers reachable."""
    block, _, reachable = row
    assert is_global_unicast(ipaddress.ip_network(block)[0]) is (reachable and block != "64:ff9b::/96")


REFUSED_IPV4 = [block for block, _, reachable in special_addresses.IPV4 if not reachable]


@pytest.mark.parametrize("block", REFUSED_IPV4)
def test_an_ipv4_address_that_is_refused_is_refused_in_every_ipv6_address_that_carries_it(block: str) -> None:
    for address in _inside(block):
        if is_global_unicast(address):  # a more specific block within it is reachable
            continue
        number = int(address)
        teredo = (0x20010000 << 96) | (number ^ 0xFFFFFFFF)
        carriers = [0xFFFF << 32 | number, number, (0x2002 << 112) | number << 80, teredo]
        carriers += [(0x64FF9B << 96) | number, (0x64FF9B0001 << 80) | number]
        for carrier in carriers:
            assert not is_global_unicast(normalised(str(ipaddress.IPv6Address(carrier)))), (address, carrier)


def test_python_calls_nothing_private_that_the_table_lets_through() -> None:
    """A cross-check by another hand; the registries list a few reachable blocks that older Pythons do not know."""
    listed = [ipaddress.ip_network(block) for block, _, reachable in special_addresses.IPV6 if reachable]
    listed += [ipaddress.ip_network(block) for block, _, reachable in special_addresses.IPV4 if reachable]
    chance = random.Random(12)
    addresses = [ipaddress.IPv4Address(chance.getrandbits(32)) for _ in range(20_000)]
    addresses += [ipaddress.IPv6Address(1 << 125 | chance.getrandbits(125)) for _ in range(20_000)]
    addresses += [ipaddress.IPv6Address(0x2001 << 112 | chance.getrandbits(112)) for _ in range(20_000)]
    reached = [each for each in addresses if is_global_unicast(each)]
    assert [each for each in reached if not each.is_global and not any(each in block for block in listed)] == []
    assert len(reached) > 40_000


@pytest.mark.parametrize(
    ("answer", "allow", "reached"),
    [
        ("169.254.169.254", ["0.0.0.0/0"], False),
        ("169.254.169.254", ["169.254.0.0/16"], False),
        ("169.254.169.254", ["169.254.169.254/32"], True),
        ("168.63.129.16", [], False),
        ("168.63.129.16", ["168.63.129.0/24"], False),
        ("::ffff:169.254.169.254", ["0.0.0.0/0", "::/0"], False),
        ("64:ff9b::a9fe:a9fe", ["64:ff9b::/96"], False),
        ("64:ff9b::808:808", ["64:ff9b::/96"], True),
        ("2002:a9fe:a9fe::1", ["2002::/16"], False),
        ("64:ff9b:1::a9fe:a9fe", ["::/0"], False),
        ("64:ff9b:1:a9fe:a9:fe00::", ["::/0"], False),  # RFC 6052 with a prefix of 48, 56 and 64 bits
        ("64:ff9b:1:aba9:fe:a9fe::", ["::/0"], False),
        ("64:ff9b:1:abcd:a9:fea9:fe00:0", ["::/0"], False),
        ("64:ff9b:1::808:808", ["::/0"], True),
        ("::169.254.169.254", ["::/0"], False),
        ("::8.8.8.8", ["::/0"], True),
        ("::ffff:0:169.254.169.254", ["::/0"], False),
        ("2001:db8::5efe:169.254.169.254", ["::/0"], False),
        ("2001:db8::200:5efe:169.254.169.254", ["::/0"], False),
        ("fd00:ec2::254", ["fd00::/8"], False),
        ("fd00:ec2::254%eth0", ["fd00::/8"], False),
        ("fd00:ec2::255", ["fd00::/8"], True),
        ("169.254.169.1", ["169.254.0.0/16"], True),
    ],
)
async def test_a_wide_network_does_not_open_the_metadata_of_a_platform(
    answer: str, allow: list[str], reached: bool
) -> None:
    """An agent that reaches them has the credentials of the machine: they must be named alone."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return [answer]

    guard = AddressGuard([ipaddress.ip_network(each) for each in allow], resolve=resolve)
    if reached:
        assert len(await guard.check("name", 80, time.monotonic() + 5)) == 1
        return
    with pytest.raises(AddressRefused, match="unless allow_addresses of the upstream names it alone"):
        await guard.check("name", 80, time.monotonic() + 5)


def _answers(*rounds: Sequence[str]) -> tuple[AddressGuard, list[int]]:
    """A guard whose name answers differently each time; the list counts the questions."""
    asked: list[int] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(port)
        return rounds[min(len(asked), len(rounds)) - 1]

    return AddressGuard(resolve=resolve), asked


async def test_htp_10_a_name_that_turns_to_loopback_is_refused_at_connect() -> None:
    """HTP-10: public when it was checked, loopback when it is connected to; nothing reaches the listener."""
    with MisbehavingServer(RestApp()) as server:
        guard, asked = _answers(["8.8.8.8"], ["127.0.0.1"])
        deadline = time.monotonic() + 10
        assert await guard.check("rebind.example", server.port, deadline) == ("8.8.8.8",)
        with pytest.raises(AddressRefused):
            await guard.connect("rebind.example", server.port, deadline)
        assert len(asked) == 2
        assert server.accepted == 0


async def test_htp_10_the_checked_address_is_the_one_connected_to() -> None:
    """One question a connection: the socket goes to the literal that was checked, not to the name again."""
    with MisbehavingServer(RestApp()) as server:
        asked = 0

        async def resolve(host: str, port: int) -> Sequence[str]:
            nonlocal asked
            asked += 1
            return ["127.0.0.1"] if asked == 1 else ["127.0.0.99"]

        guard = AddressGuard(LOOPBACK, resolve=resolve)
        stream = await guard.connect("name.that.does.not.exist.invalid", server.port, time.monotonic() + 10)
        assert stream.peer() == "127.0.0.1"
        assert asked == 1
        stream.close()


async def test_one_forbidden_answer_refuses_the_name() -> None:
    """Mixed answers are how a rebinding looks."""
    guard, _ = _answers(["8.8.8.8", "127.0.0.1"])
    with pytest.raises(AddressRefused, match="allow_addresses"):
        await guard.check("mixed.example", 443, time.monotonic() + 10)


async def test_an_allow_list_replaces_the_default() -> None:
    """R627: with allow_addresses only those networks, public ones included; IPv4-mapped counts as IPv4."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return [host]

    guard = AddressGuard(LOOPBACK, resolve=resolve)
    deadline = time.monotonic() + 10
    assert await guard.check("::ffff:127.0.0.1", 80, deadline) == ("127.0.0.1",)
    for refused in ("8.8.8.8", "::1", "10.0.0.1"):
        with pytest.raises(AddressRefused):
            await guard.check(refused, 80, deadline)


async def test_the_next_address_is_tried_and_nobody_listening_is_a_connect_error() -> None:
    """Connecting has no effect, so addresses are tried in turn within one deadline."""
    with MisbehavingServer(RestApp()) as server:

        async def resolve(host: str, port: int) -> Sequence[str]:
            return ["127.0.0.2", "127.0.0.1"]  # the server listens on 127.0.0.1 only

        guard = AddressGuard(LOOPBACK, resolve=resolve)
        stream = await guard.connect("two.example", server.port, time.monotonic() + 10)
        assert stream.peer() == "127.0.0.1"
        stream.close()

    with pytest.raises(httpx2.ConnectError):
        await guard.connect("two.example", server.port, time.monotonic() + 10)


async def test_a_hanging_resolver_ends_at_the_deadline() -> None:
    """R179: resolving is part of the exchange."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(httpx2.ConnectTimeout):
        await AddressGuard(resolve=resolve).check("slow.example", 443, time.monotonic() + 0.1)


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "127.1", "0177.0.0.1", "localhost"])
async def test_other_spellings_of_loopback_are_refused(host: str) -> None:
    """What the resolver makes of a spelling is what is checked."""
    with pytest.raises(httpx2.ConnectError):
        await AddressGuard().check(host, 80, time.monotonic() + 10)


async def test_the_exchange_says_why() -> None:
    """The adapter learns ADDRESS_REFUSED, and that no byte was sent."""
    with MisbehavingServer(RestApp()) as server:
        guard = Guard(HttpOrigin("http", "127.0.0.1", server.port), AddressGuard().connect, None, 1 << 20)
        exchange = guard.exchange(time.monotonic() + 10)
        request = httpx2.Request("GET", f"http://127.0.0.1:{server.port}/")
        with pytest.raises(httpx2.ConnectError):
            await exchange.transport.handle_async_request(request)
        assert (exchange.tampered, exchange.bytes_written, server.accepted) == ("ADDRESS_REFUSED", 0, 0)
        await exchange.close()


async def test_r179_a_silent_name_server_holds_up_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """R179: look-ups that nobody waits for any more leave the other upstreams, and the loop's executor, their threads.

    However many calls ask for the silent name, it is looked up once at a time.
    """
    answered, asked = threading.Event(), []

    def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        asked.append(host)
        if host == "silent.example":
            answered.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    silent, other = AddressGuard(LOOPBACK), AddressGuard(LOOPBACK)
    try:
        looks = [silent.check("silent.example", 443, time.monotonic() + 0.2) for _ in range(64)]
        ends = await asyncio.gather(*looks, return_exceptions=True)
        assert {type(end) for end in ends} == {httpx2.ConnectTimeout}
        async with asyncio.timeout(20):
            assert await other.check("other.example", 443, time.monotonic() + 20) == ("127.0.0.1",)
            assert await asyncio.to_thread(int) == 0
        assert asked == ["silent.example", "other.example"]
    finally:
        answered.set()


async def test_no_thread_for_a_name_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """R186: then nothing was sent, and the call says so."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(httpx2.ConnectError, match="thread"):
        await AddressGuard(LOOPBACK).connect("localhost", 1, time.monotonic() + 10)
