"""`python -m valet_sandbox_controller.portal`."""

from valet_service import lifecycle

from valet_sandbox_controller.portal import app

if __name__ == "__main__":
    lifecycle.run(app.NAME, app.main)
