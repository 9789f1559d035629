"""Asks a service on this computer whether it lives: `python -m physai.service.serving.health [PORT]`, for a container.

It imports nothing but Python's own library, because it runs every few seconds.
"""

import http.client
import ssl
import sys

PORT = 8800
TIMEOUT_S = 4.0


def lives(port: int) -> bool:
    """Whether `/healthz` answers on loopback, with TLS or without; no certificate is verified, for nothing is told."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # Without TLS first: a service with TLS refuses that at once and without a word in its log.
    for connection in (
        http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S),
        http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_S, context=context),
    ):
        try:
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                return True
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
    return False


if __name__ == "__main__":
    sys.exit(0 if lives(int(sys.argv[1]) if len(sys.argv) > 1 else PORT) else 1)
