"""`python -m valet_session_ledger`."""

import gc

from valet_service import lifecycle

from valet_session_ledger import limits
from valet_session_ledger.app import main

gc.set_threshold(*limits.GC_THRESHOLD)
lifecycle.run("session-ledger", main)
