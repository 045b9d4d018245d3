"""Where a process may listen, and whether it then requires a key."""

import ipaddress
import logging

from shared.settings import Settings

_log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a server that listens on `host`."""
    address = _parse_address(host)
    return host == "localhost" if address is None else address.is_loopback


def is_address(host: str) -> bool:
    """Tell whether `host` is an IP address rather than a name."""
    return _parse_address(host) is not None


def keys_required(settings: Settings) -> bool:
    """Tell whether the API requires keys."""
    if settings.access.keys == "auto":
        return not is_loopback(settings.host)
    return settings.access.keys == "required"


def log_exposure(settings: Settings) -> None:
    """Log, at start, who can reach the API if it listens beyond loopback."""
    if is_loopback(settings.host):
        return
    if keys_required(settings):
        _log.info("the API listens on %s and requires keys: `mathrag key create NAME --scope read`", settings.host)
    else:
        _log.warning("the API listens on %s WITHOUT keys: any client that reaches it may do everything", settings.host)


def explain_refusal(settings: Settings, host: str) -> str | None:
    """Explain why guard or retriever must not listen on `host`; None if it may."""
    if is_loopback(host) or settings.service_key:
        return None
    return (
        f"refused to listen on {host!r} without a service key: "
        "set the same MATHRAG_SERVICE_KEY for all services (`openssl rand -hex 32`), or listen on 127.0.0.1"
    )


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
