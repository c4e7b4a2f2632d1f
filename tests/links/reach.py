"""What can be reached from here: `reach.py ADDRESS…` prints the interfaces and each address's answer."""

from __future__ import annotations

import json
import socket
import sys

NOBODY_S_PORT = 10


def answer(address):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.5)
        try:
            probe.connect((address, NOBODY_S_PORT))
        except ConnectionRefusedError:
            return "refused"
        except TimeoutError:
            return "silent"
        except OSError:
            return "unreachable"
        return "open"


print(
    json.dumps(
        {
            "interfaces": [name for _, name in socket.if_nameindex()],
            "answers": {address: answer(address) for address in sys.argv[1:]},
        }
    )
)
