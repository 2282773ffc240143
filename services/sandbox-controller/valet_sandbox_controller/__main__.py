"""`python -m valet_sandbox_controller`."""

from valet_service import lifecycle

from valet_sandbox_controller import app

if __name__ == "__main__":
    lifecycle.run(app.NAME, app.main)
