"""Check that this container's server answers: `python -m shared.probe URL`. It imports little, since it runs every few
seconds."""

import sys
import urllib.request

PATIENCE_S = 3.0


def answers(url: str) -> bool:
    """Tell whether a GET is answered 200."""
    # No proxy of the environment may come between us and our own container.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=PATIENCE_S) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(0 if answers(sys.argv[1]) else 1)
