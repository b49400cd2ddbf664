"""Decides whether an IP address is public, by a list: `is_global` differs between Python versions."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_NOT_PUBLIC_V4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # the host of virtual machines in Azure
    )
)  # fmt: skip
"""IANA's registry of special-purpose IPv4 addresses (RFC 6890), and multicast (RFC 5771)."""

_PUBLIC_V6 = IPv6Network("2000::/3")
"""All allocated global unicast addresses (RFC 4291). All others are local, mapped, translated or unused."""
_NOT_PUBLIC_V6 = tuple(
    IPv6Network(block)
    for block in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
)  # fmt: skip
"""Exceptions in IANA's registry: Teredo and other protocols, examples, 6to4."""

_NAT64 = IPv6Network("64:ff9b::/96")
"""IPv4 addresses in IPv6 networks (RFC 6052): as public as the embedded IPv4 address."""


def is_public(address: str) -> bool:
    """Return whether a numeric address is public; False for an invalid address."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return _is_public_v4(found) if isinstance(found, IPv4Address) else _is_public_v6(found)


def _is_public_v4(address: IPv4Address) -> bool:
    return not any(address in block for block in _NOT_PUBLIC_V4)


def _is_public_v6(address: IPv6Address) -> bool:
    if address.ipv4_mapped is not None:
        return _is_public_v4(address.ipv4_mapped)
    if address in _NAT64:
        return _is_public_v4(IPv4Address(int(address) & 0xFFFFFFFF))
    if _embeds_private(address):
        return False
    return address in _PUBLIC_V6 and not any(address in block for block in _NOT_PUBLIC_V6)


def _embeds_private(address: IPv6Address) -> bool:
    """Whether it is an ISATAP address (RFC 5214) with a private IPv4 address in its last 32 bits."""
    interface = int(address) & 0xFFFFFFFF_FFFFFFFF
    return interface >> 32 in (0x5EFE, 0x0200_5EFE) and not _is_public_v4(IPv4Address(interface & 0xFFFFFFFF))
