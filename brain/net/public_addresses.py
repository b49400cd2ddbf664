"""Which internet addresses are public. Written out, since what Python calls global differs between versions."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_NOT_PUBLIC_V4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # public by its number only: the host of a virtual machine in Azure
    )
)  # fmt: skip
"""IANA's registry of special-purpose IPv4 addresses (RFC 6890), and multicast (RFC 5771)."""

_PUBLIC_V6 = IPv6Network("2000::/3")
"""All that was ever given out as global unicast (RFC 4291); the rest is local, mapped, translated or not in use."""
_NOT_PUBLIC_V6 = tuple(
    IPv6Network(block)
    for block in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
)  # fmt: skip
"""What IANA's registry takes out of it: Teredo and other protocols, examples, 6to4."""

_NAT64 = IPv6Network("64:ff9b::/96")
"""IPv4 seen from a network that has none (RFC 6052): as public as the IPv4 address in it."""


def is_public(address: str) -> bool:
    """Whether a numeric address belongs to the public internet; false for what is no address."""
    try:
        found = ip_address(address.partition("%")[0])
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
    """Whether it is an ISATAP address (RFC 5214), which leads to the IPv4 address in its last half."""
    interface = int(address) & 0xFFFFFFFF_FFFFFFFF
    return interface >> 32 in (0x5EFE, 0x0200_5EFE) and not _is_public_v4(IPv4Address(interface & 0xFFFFFFFF))
