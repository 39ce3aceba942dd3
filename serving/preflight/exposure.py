"""Who reaches the API, against what its key guards."""

import ipaddress

from serving.preflight.result import Result, hint, ok
from serving.preflight.subject import Subject


def check(subject: Subject) -> Result:
    """A hint where others reach the API: there is a key then, and it guards less than all."""
    address = subject.launch.bind
    if ipaddress.ip_address(address).is_loopback:
        return ok("exposure", f"{address} is reached from this host alone")
    # vLLM 0.33.0: GUARDED_PREFIX in entrypoints/serve/middleware/authenticate.py.
    what = f"others may reach {address}, and vLLM asks for the key below /v1 and few other paths alone"
    why = "whoever gets there can use the model by /invocations without a key"
    mend = f"--set {subject.knob('bind')}=127.0.0.1, and a proxy in front that passes on /v1/ alone (docs/security.md)"
    return hint("exposure", what, why, mend)
