"""What an elector's TLS goes by: whom to believe, and who we are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fleetcron.errors import ConfigError

if TYPE_CHECKING:
    import ssl


class Tls(msgspec.Struct, frozen=True):
    """Paths of PEM files. `cacert`: the certificates to believe, the machine's own without; `cert` and `key`: who we are, where the server
    asks."""

    cacert: str | None = None
    cert: str | None = None
    key: str | None = None


def make_context(tls: Tls) -> ssl.SSLContext:
    """A context that checks the server's certificate and the name in it. Raises ConfigError for files that cannot be read."""
    import ssl  # lazy: 20 ms, and parsing a URL does not need it

    try:
        context = ssl.create_default_context(cafile=tls.cacert)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"elector: cacert={tls.cacert} cannot be used: {error}") from None
    if tls.cert is not None:
        try:
            context.load_cert_chain(tls.cert, tls.key, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigError(f"elector: cert={tls.cert}, key={tls.key or tls.cert} cannot be used: {error}") from None
    return context


def _no_password() -> str:
    """Else OpenSSL asks for it on the terminal, and a service hangs at its start."""
    raise ValueError("the key has a passphrase, and nobody is there to say it")
