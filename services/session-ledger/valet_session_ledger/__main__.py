"""`python -m valet_session_ledger`."""

from valet_service import lifecycle

from valet_session_ledger.app import main

lifecycle.run("session-ledger", main)
