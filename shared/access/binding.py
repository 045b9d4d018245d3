"""Where a process may listen: beyond loopback only with a key to ask for."""

import ipaddress
import logging

from shared.settings import Settings

_log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on `host`."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def is_address(host: str) -> bool:
    """Whether `host` is an IP address, not a name."""
    return _address(host) is not None


def keys_required(settings: Settings) -> bool:
    """Whether the API asks for keys."""
    if settings.access.keys == "auto":
        return not is_loopback(settings.host)
    return settings.access.keys == "required"


def announce(settings: Settings) -> None:
    """Say at start what an operator must know about who can reach the API."""
    if is_loopback(settings.host):
        return
    if keys_required(settings):
        _log.info("the API listens on %s and asks for keys: `mathrag key create NAME --scope read`", settings.host)
    else:
        _log.warning("the API listens on %s WITHOUT keys: whoever reaches it may do everything", settings.host)


def refusal(settings: Settings, host: str) -> str | None:
    """Why guard or retriever must not listen on `host`; None: it may."""
    if is_loopback(host) or settings.service_key:
        return None
    return (
        f"refused to listen on {host!r} without a service key: "
        "set the same MATHRAG_SERVICE_KEY for all services (`openssl rand -hex 32`), or listen on 127.0.0.1"
    )


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
