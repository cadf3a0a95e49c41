"""Decides which addresses an upstream may have, and connects to exactly the address that was checked.

Each connection resolves the name once, checks every answer, and opens the socket to a checked literal address: a name
that resolves differently a moment later (DNS rebinding, HTP-10) changes nothing. TLS still verifies the name.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

import httpx2

from kblockd.upstream.special_addresses import IPV4, IPV6, PLATFORM
from kblockd.upstream.wire import Wire, connect

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

# The only block from which IANA has ever delegated IPv6 unicast; ::/96, site-local and multicast lie outside it.
_IPV6_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
# 6to4, Teredo and NAT64 embed an IPv4 address, which may be a private one, so none of them is allowed unless it is
# named. IANA calls 64:ff9b::/96 reachable and leaves the others open.
_CARRIERS: Final = ("2002::/16", "2001::/32", "64:ff9b::/96", "64:ff9b:1::/48")
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
_LOCAL_LENGTHS: Final = (48, 56, 64)
"""Of the prefixes that an operator may choose below it; behind these the IPv4 address passes over bits 64 to 71."""
_IN_THE_END: Final = (_LOCAL_NAT64, *map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96")))
"""NAT64, compatible and translated (RFC 6052, 4291, 2765): an IPv4 address stands in the last 32 bits."""
_ISATAP: Final = 0x5EFE
_PLATFORM: Final = {ipaddress.ip_address(address): name for address, name in PLATFORM.items()}


def _most_specific_first(rows: Iterable[tuple[str, str, bool]]) -> tuple[tuple[Network, bool], ...]:
    blocks = [(ipaddress.ip_network(block), reachable and block not in _CARRIERS) for block, _, reachable in rows]
    return tuple(sorted(blocks, key=lambda row: -row[0].prefixlen))


_SPECIAL: Final = {4: _most_specific_first(IPV4), 6: _most_specific_first(IPV6)}


class AddressRefused(httpx2.ConnectError):
    """The name resolves to an address that the upstream's ``allow_addresses`` does not contain."""

    code = "ADDRESS_REFUSED"


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """Literal addresses of ``host`` in the resolver's order; raises OSError.

    In its own thread: uvloop resolves two names at a time and never abandons one, so a single name with silent servers
    would block every other upstream. A daemon thread, so that the process does not wait for it at exit.
    """
    loop = asyncio.get_running_loop()
    resolved: asyncio.Future[list[str]] = loop.create_future()

    def deliver(result: list[str] | Exception) -> None:
        if resolved.done():
            return
        if isinstance(result, Exception):
            resolved.set_exception(result)
        else:
            resolved.set_result(result)

    def resolve() -> None:
        result: list[str] | Exception
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            result = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
        except Exception as error:
            result = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(deliver, result)

    try:
        threading.Thread(target=resolve, name="kblockd-resolve", daemon=True).start()
    except RuntimeError as error:
        raise OSError(f"no thread for the look-up: {error}") from None
    return await resolved


class AddressGuard:
    """Resolves, checks and connects for one upstream (R626, R627).

    ``allow`` lists the only networks that may be connected to; empty means global unicast only. An address of a cloud
    platform (metadata, credentials) must be named alone, as ``/32`` or ``/128``: a wide network never lets it through.
    A name with even one forbidden address is refused: mixed answers are the sign of a rebinding.
    """

    def __init__(
        self,
        allow: Sequence[Network] = (),
        *,
        resolve: Resolver = system_resolver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allow = tuple(allow)
        self._resolve = resolve
        self._clock = clock
        self._literals: dict[str, tuple[str, ...]] = {}  # a literal address always resolves to itself
        self._lookups: dict[tuple[str, int], asyncio.Task[Sequence[str]]] = {}

    async def check(self, host: str, port: int, deadline: float) -> tuple[str, ...]:
        """The addresses that may be connected to, before ``deadline`` (monotonic seconds).

        Raises ``AddressRefused``, ``httpx2.ConnectError`` (no such name) or ``httpx2.ConnectTimeout``.
        """
        if (literal := self._literals.get(host)) is not None:
            self._remaining(deadline)
            return literal
        try:
            async with asyncio.timeout(self._remaining(deadline)):
                answers = await self._resolved(host, port)
        except TimeoutError:
            raise httpx2.ConnectTimeout(f"{host} was not resolved in time") from None
        except OSError as error:
            raise httpx2.ConnectError(f"{host} cannot be resolved: {error.strerror or error}") from None
        if not answers:
            raise httpx2.ConnectError(f"{host} has no address")
        checked = tuple(str(self._checked(host, answer)) for answer in answers)
        if checked == (host,):
            self._literals[host] = checked
        return checked

    async def connect(self, host: str, port: int, deadline: float) -> Wire:
        """A TCP stream to a checked address of ``host``; raises as ``check`` does, and ``httpx2.ConnectError`` when
        nobody listens."""
        addresses = await self.check(host, port, deadline)
        for position, address in enumerate(addresses):
            share = self._remaining(deadline) / (len(addresses) - position)
            try:
                return await connect(address, port, share)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if position == len(addresses) - 1:
                    raise
        raise AssertionError("check never returns without an address")

    async def _resolved(self, host: str, port: int) -> Sequence[str]:
        """Waiters for the same name share one look-up: a silent name server costs one thread, not one per call."""
        name = (host, port)
        if (lookup := self._lookups.get(name)) is None:
            lookup = self._lookups[name] = asyncio.get_running_loop().create_task(self._look_up(name))
            lookup.add_done_callback(_retrieve)
        return await asyncio.shield(lookup)

    async def _look_up(self, name: tuple[str, int]) -> Sequence[str]:
        try:
            return await self._resolve(*name)
        finally:
            del self._lookups[name]

    def _checked(self, host: str, answer: str) -> Address:
        address = normalised(answer)
        alone = any(network.num_addresses == 1 and address in network for network in self._allow)
        if (platform := _platform(address)) and not alone:
            wanted = f"it belongs to the platform ({platform}) unless allow_addresses of the upstream names it alone"
            raise AddressRefused(f"{host} resolves to {address}: {wanted}")
        if self._allow:
            allowed = any(address in network for network in self._allow)
            wanted = "allow_addresses of the upstream does not contain it"
        else:
            allowed = is_global_unicast(address)
            wanted = "only global unicast is allowed unless allow_addresses of the upstream names the network"
        if not allowed:
            raise AddressRefused(f"{host} resolves to {address}: {wanted}")
        return address

    def _remaining(self, deadline: float) -> float:
        left = deadline - self._clock()
        if left <= 0:
            raise httpx2.ConnectTimeout("the deadline has passed before connecting")
        return left


def _retrieve(lookup: asyncio.Task[Sequence[str]]) -> None:
    """Retrieves the exception, so that asyncio does not report it once every waiter has gone."""
    if not lookup.cancelled():
        lookup.exception()


def normalised(answer: str) -> Address:
    """Turns an IPv4-mapped IPv6 address into the IPv4 address."""
    address = ipaddress.ip_address(answer)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_global_unicast(address: Address) -> bool:
    """Whether IANA's registries (``special_addresses``) call the address globally reachable.

    False for transition formats that carry an IPv4 address, and for the addresses of cloud platforms, some of which are
    ordinary public ones.
    """
    if _platform(address) or address.is_multicast:
        return False
    for network, reachable in _SPECIAL[address.version]:
        if address in network:
            return reachable
    return address.version == 4 or address in _IPV6_UNICAST


def _platform(address: Address) -> str:
    """Which cloud's own address it is or carries, "" for none; a zone (``%eth0``) changes nothing."""
    carried = _carried(address) if isinstance(address, ipaddress.IPv6Address) else ()
    return next(filter(None, map(_PLATFORM.get, (type(address)(int(address)), *carried))), "")


def _carried(address: ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses that a gateway may send to."""
    number = int(address)
    if address.teredo:
        yield address.teredo[1]
    if address.sixtofour:
        yield address.sixtofour
    if any(address in network for network in _IN_THE_END) or number >> 32 & 0xFDFF_FFFF == _ISATAP:
        yield ipaddress.IPv4Address(number & 0xFFFF_FFFF)
    if address in _LOCAL_NAT64:
        joined = number >> 64 << 56 | number & (1 << 56) - 1
        yield from (ipaddress.IPv4Address(joined >> 88 - length & 0xFFFF_FFFF) for length in _LOCAL_LENGTHS)


def _is_alone(address: Address, network: Network) -> bool:
    return network.num_addresses == 1 and address in network
